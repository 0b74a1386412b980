package meta

// Numbers are read as strictly as memcached reads them: decimal digits and
// nothing else, never longer than its limits. The flags and the exptime of the
// set family are older than that, and go through C's strtoul and strtol.

// Longest numbers in bytes. Source: mcmc's MCMC_TOKTO32_MAX, MCMC_TOKTO64_MAX.
const (
	number32Max = 11
	number64Max = 22
)

// ParseUint32 reads a decimal number of at most 11 digits, leading zeros
// allowed, no sign. No digits at all are 0.
func ParseUint32(b []byte) (n uint32, ok bool) {
	if len(b) > number32Max {
		return 0, false
	}
	var v uint64 // 11 digits fit
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		v = v*10 + uint64(c)
	}
	return uint32(v), v <= 1<<32-1
}

// ParseInt32 reads a decimal number of at most 11 bytes, a minus among them.
// A lone minus is 0, as in memcached.
func ParseInt32(b []byte) (n int32, ok bool) {
	if len(b) > number32Max {
		return 0, false
	}
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	var v int64 // 11 digits fit
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		v = v*10 + int64(c)
	}
	if negative {
		v = -v
	}
	return int32(v), v == int64(int32(v))
}

// parseTTL is ParseInt32 for an exptime.
func parseTTL(b []byte) (n int64, ok bool) {
	v, ok := ParseInt32(b)
	return int64(v), ok
}

// ParseUint64 reads a decimal number of at most 22 digits, leading zeros
// allowed, no sign.
func ParseUint64(b []byte) (n uint64, ok bool) {
	if len(b) > number64Max {
		return 0, false
	}
	for _, c := range b {
		if c -= '0'; c > 9 || n > (1<<64-1-uint64(c))/10 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return n, true
}

// strtoul32 reads the number at the start of b as memcached's safe_strtoul
// does: white space and a sign may precede it, white space, a NUL or the end
// must follow. What is above 32 bits is cut off.
func strtoul32(b []byte) (n uint32, ok bool) {
	v, negative, ok := cNumber(b)
	if negative {
		v = -v
		ok = ok && int64(v) >= 0
	}
	return uint32(v), ok
}

// strtol32 is strtoul32 for memcached's safe_strtol: of a number of 64 bits
// the lower 32 are taken.
func strtol32(b []byte) (n int32, ok bool) {
	v, negative, ok := cNumber(b)
	switch {
	case negative:
		return int32(-v), ok && v <= 1<<63
	default:
		return int32(v), ok && v < 1<<63
	}
}

// cNumber is the part of strtoul that all have in common: the digits at the
// start of b as a number, and its sign. It is not ok without digits, beyond 64
// bits, or if neither white space nor NUL nor the end follows.
func cNumber(b []byte) (v uint64, negative, ok bool) {
	i := 0
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		negative = b[i] == '-'
		i++
	}
	first := i
	for ; i < len(b); i++ {
		c := b[i] - '0'
		if c > 9 {
			break
		}
		if v > (1<<64-1-uint64(c))/10 {
			return 0, false, false
		}
		v = v*10 + uint64(c)
	}
	ended := i == len(b) || isSpace(b[i]) || b[i] == 0
	return v, negative, i > first && ended
}

// isSpace is C's isspace.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
