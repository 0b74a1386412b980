package server

// appendURI appends key, URI-encoded as memcached's uriencode does it.
func appendURI(b, key []byte) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range key {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z',
			c == '-', c == '.', c == '_', c == '~':
			b = append(b, c)
		default:
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}
