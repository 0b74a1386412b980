package bench

import "strconv"

// The requests and replies of Redis (RESP 2), for a peer that speaks nothing
// else: GET, MGET and SET.

// respGet appends a GET, or an MGET of all keys.
func (e *encoder) respGet(dst []byte, ks []uint64) []byte {
	if len(ks) == 1 {
		return e.respKey(append(dst, "*2\r\n$3\r\nGET\r\n"...), ks[0])
	}
	dst = append(dst, '*')
	dst = strconv.AppendInt(dst, int64(len(ks)+1), 10)
	dst = append(dst, "\r\n$4\r\nMGET\r\n"...)
	for _, k := range ks {
		dst = e.respKey(dst, k)
	}
	return dst
}

// respSet appends a SET of key k's value.
func (e *encoder) respSet(dst []byte, k uint64) []byte {
	dst = e.respKey(append(dst, "*3\r\n$3\r\nSET\r\n"...), k)
	dst = respLength(dst, e.values.size(k))
	dst = e.values.append(dst, k)
	return append(dst, "\r\n"...)
}

func (e *encoder) respKey(dst []byte, k uint64) []byte {
	dst = respLength(dst, e.keys.size())
	dst = e.keys.append(dst, k)
	return append(dst, "\r\n"...)
}

// respLength appends the line in front of a string of n bytes.
func respLength(dst []byte, n int) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, "\r\n"...)
}

// respLine takes one line of a reply, without its end.
func (rs *replies) respLine(line []byte) error {
	oldest := rs.queue.at(rs.queue.head)
	switch {
	case len(line) > 0 && line[0] == '-':
		rs.refuse(line)
	case oldest.kind != kindGet && string(line) == "+OK":
		rs.stored(oldest)
	case oldest.kind == kindGet && len(line) > 1 && line[0] == '*' && rs.queue.stride > 1 && oldest.next == 0:
		if n, ok := decimal(line[1:]); !ok || n != rs.queue.stride {
			return rs.unexpected(line, "it answers another number of keys")
		}
	case oldest.kind == kindGet && string(line) == "$-1":
		rs.missUntil(oldest, oldest.next+1)
		rs.respAnswered()
	case oldest.kind == kindGet && len(line) > 1 && line[0] == '$':
		return rs.value(line, oldest, nil, line[1:])
	default:
		return rs.unexpected(line, "it answers something else")
	}
	return nil
}

// respAnswered ends a get whose last key was answered.
func (rs *replies) respAnswered() {
	if rs.queue.at(rs.queue.head).next == rs.queue.stride {
		rs.finish()
	}
}
