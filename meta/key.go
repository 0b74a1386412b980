package meta

import "bytes"

// NextKey takes the next key from rest: it skips spaces, and key is what stands
// before the next one. A nil key says that there is none. In a line that has
// not wholly arrived, a key with an empty tail may go on.
func NextKey(rest []byte) (key, tail []byte) {
	for len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return nil, nil
	}
	if i := bytes.IndexByte(rest, ' '); i >= 0 { // quicker than a loop from about 8 bytes on
		return rest[:i:i], rest[i:]
	}
	return rest, nil
}

// ValidTextKey reports whether key can be sent as it is: 1 to KeyMax bytes, no
// space or control character. Other keys need base64.
func ValidTextKey(key []byte) bool {
	for _, c := range key {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return len(key) > 0 && len(key) <= KeyMax
}

// BinaryKeyMax is the longest key in bytes that fits in KeyMax bytes of base64.
const BinaryKeyMax = KeyMax / 4 * 3

// notBase64 marks the bytes that decodeKey skips.
const notBase64 = 0x80

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// base64Values is the value of each digit, 0 for the padding, else notBase64.
var base64Values = func() (values [256]byte) {
	for i := range values {
		values[i] = notBase64
	}
	for i := range len(base64Digits) {
		values[base64Digits[i]] = byte(i)
	}
	values['='] = 0
	return values
}()

// AppendKey64 appends key in base64: the standard alphabet, padded.
func AppendKey64(dst, key []byte) []byte {
	for len(key) >= 3 {
		v := uint(key[0])<<16 | uint(key[1])<<8 | uint(key[2])
		dst = append(dst, base64Digits[v>>18], base64Digits[v>>12&63], base64Digits[v>>6&63], base64Digits[v&63])
		key = key[3:]
	}
	switch len(key) {
	case 1:
		v := uint(key[0]) << 4
		dst = append(dst, base64Digits[v>>6], base64Digits[v&63], '=', '=')
	case 2:
		v := uint(key[0])<<10 | uint(key[1])<<2
		dst = append(dst, base64Digits[v>>12], base64Digits[v>>6&63], base64Digits[v&63], '=')
	}
	return dst
}

// AppendKeyOf64 appends the key that text spells in base64. It is as lenient as
// memcached: characters outside the alphabet are skipped, what follows a padded
// group is ignored, padding may stand in front of a digit. It is not ok if the
// digits, padding included, are not a multiple of four, if there are none, or
// if three or more of a group are padding.
//
// (encoding/base64 refuses most of that, and so would refuse keys that
// memcached serves.)
func AppendKeyOf64(dst, text []byte) (key []byte, ok bool) {
	digits := 0
	for _, c := range text {
		if base64Values[c] != notBase64 {
			digits++
		}
	}
	if digits == 0 || digits%4 != 0 {
		return dst, false
	}
	var group uint
	n, padding := 0, 0
	for _, c := range text {
		v := base64Values[c]
		if v == notBase64 {
			continue
		}
		if c == '=' {
			padding++
		}
		group = group<<6 | uint(v)
		if n++; n < 4 {
			continue
		}
		n = 0
		switch padding {
		case 0:
			dst = append(dst, byte(group>>16), byte(group>>8), byte(group))
		case 1:
			return append(dst, byte(group>>16), byte(group>>8)), true
		case 2:
			return append(dst, byte(group>>16)), true
		default:
			return dst, false
		}
	}
	return dst, true
}
