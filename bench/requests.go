package bench

import "strconv"

// encoder writes requests. It is read-only: all workers share one. Requests
// are appended to the caller's buffer; keys and values stand for the same
// bytes in all protocols.
type encoder struct {
	protocol Protocol
	keys     *keys
	values   *values
}

// get appends the request for the keys ks: one line that names them all in
// text; in meta a quiet mg for each and an mn, which ends the reply; the same
// with packets; one MGET for Redis.
func (e *encoder) get(dst []byte, ks []uint64) []byte {
	switch e.protocol {
	case Binary:
		return e.packetGet(dst, ks)
	case Redis:
		return e.respGet(dst, ks)
	}
	if e.protocol == Text {
		dst = append(dst, "get"...)
		for _, k := range ks {
			dst = append(dst, ' ')
			dst = e.keys.append(dst, k)
		}
		return append(dst, "\r\n"...)
	}
	if len(ks) == 1 {
		dst = append(dst, "mg "...)
		dst = e.keys.append(dst, ks[0])
		return append(dst, " v\r\n"...)
	}
	for _, k := range ks {
		dst = append(dst, "mg "...)
		dst = e.keys.append(dst, k)
		dst = append(dst, " v k q\r\n"...)
	}
	return append(dst, "mn\r\n"...)
}

// set appends the request that stores key k's value.
func (e *encoder) set(dst []byte, k uint64) []byte {
	switch e.protocol {
	case Binary:
		return e.packetSet(dst, k)
	case Redis:
		return e.respSet(dst, k)
	}
	if e.protocol == Text {
		dst = append(dst, "set "...)
		dst = e.keys.append(dst, k)
		dst = append(dst, " 0 0 "...)
	} else {
		dst = append(dst, "ms "...)
		dst = e.keys.append(dst, k)
		dst = append(dst, ' ')
	}
	dst = strconv.AppendInt(dst, int64(e.values.size(k)), 10)
	dst = append(dst, "\r\n"...)
	dst = e.values.append(dst, k)
	return append(dst, "\r\n"...)
}
