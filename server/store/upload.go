package store

// Upload is a value on its way in: it is written into its chunks as it
// arrives, and nobody sees it before Commit. Chunks are taken as bytes come,
// so that a sender who stops holds no more than it sent. The zero value is
// ready for Begin; an Upload belongs to one goroutine at a time.
type Upload struct {
	sh    *shard // nil: nothing was begun
	w     writer
	hash  uint64
	left  int   // bytes to come
	taken int64 // chunk bytes, counted in the store's uploadBytes
	o     SetOptions

	// Refusal is why Begin was Refused.
	Refusal Reason
}

// Begin takes the first chunk for a value of n bytes under key k, which it
// copies. Any other status than OK means that nothing was begun, and that
// the value is to be swallowed.
func (s *Store) Begin(k Key, n int, o *SetOptions, now Time, u *Upload) Status {
	if s.tooLarge(len(k.Bytes), n, o.Flags) {
		return s.refuse(k, TooLarge, o, now)
	}
	sh := s.lock(k, now)
	defer sh.unlock()
	if o.Fill == nil { // a fill is judged when it is whole
		if u.Refusal = sh.preJudge(k, o, now); u.Refusal != ReasonNone {
			return Refused
		}
	}
	l := s.layoutFor(len(k.Bytes), n, o.Flags, o.Fill != nil || sh.needsExtra(k))
	if sh.tenants != nil {
		if st := sh.admit(k, n, l.head+n, o, now); st != OK {
			res := sh.refuseQuota(k, st, o, now)
			u.Refusal = res.Reason
			return res.Status
		}
	}
	taken := int64(s.table.Bytes(l.class))
	if !s.takeUpload(taken) {
		return sh.refuse(k, NoMemory, o, now)
	}
	r, _ := sh.allocFor(k, l.class, o, now)
	if r == 0 {
		s.uploadBytes.Add(-taken)
		return sh.refuse(k, NoMemory, o, now)
	}
	it := sh.init(r, l, k.Bytes, n, o.Flags, o.Expiry, now.Seconds())
	sh.classes[sh.orderClass(it)].cmdSet++
	*u = Upload{sh: sh, w: sh.writer(it), hash: k.Hash, left: n, taken: taken, o: *o}
	u.o.Observer = nil
	return OK
}

func (s *Store) takeUpload(n int64) bool {
	if s.uploadBytes.Add(n) <= s.uploadMax() {
		return true
	}
	s.uploadBytes.Add(-n)
	return false
}

// Observe says who is told of what the next Write and Commit do: nobody, if it
// is not called. Their observer may be another one than that of Begin.
func (u *Upload) Observe(o Observer) { u.o.Observer = o }

// Remaining is the number of bytes still to be written.
func (u *Upload) Remaining() int { return u.left }

// Write copies p, at most Remaining bytes, behind what was written before.
// ReadNoMemory means that there is no more room: the rest of the value is to
// be swallowed, after Abort.
func (u *Upload) Write(p []byte, now Time) Status {
	for len(p) > 0 {
		room, st := u.Room(now)
		if st != OK {
			return st
		}
		n := copy(room, p)
		u.Advance(n)
		p = p[n:]
	}
	return OK
}

// Room is memory for the next bytes of the value, for a caller that reads them
// into it instead of having them copied by Write: at least one byte and at most
// Remaining, which must not be 0. It belongs to the caller until Advance, Write,
// Commit or Abort. ReadNoMemory is as with Write.
func (u *Upload) Room(now Time) ([]byte, Status) {
	if u.w.room == 0 {
		if st := u.grow(now); st != OK {
			return nil, st
		}
	}
	return u.w.free(), OK // the chunk is ours alone: no lock
}

// Advance says that the first n bytes of Room were written.
func (u *Upload) Advance(n int) {
	u.w.advance(n)
	u.left -= n
}

// grow takes the next chunk.
func (u *Upload) grow(now Time) Status {
	s := u.sh.s
	u.sh.lock()
	defer u.sh.unlock()
	u.sh.enter(now)
	n, c := u.w.nextPiece()
	key := Key{Hash: u.hash, Bytes: u.w.it.key()}
	if taken := int64(s.table.Bytes(c)); s.takeUpload(taken) {
		u.taken += taken
		if r, _ := u.sh.allocFor(key, c, &u.o, now); r != 0 {
			u.w.attach(r, n)
			return OK
		}
	}
	// As with NoMemory, the old value of a set must not stay behind.
	return u.sh.refuse(key, ReadNoMemory, &u.o, now)
}

// Commit stores the value, which must be whole.
func (u *Upload) Commit(now Time) SetResult {
	sh := u.sh
	sh.seal(u.w.it) // before the lock: the value is ours alone
	sh.lock()
	defer sh.unlock()
	sh.enter(now)
	it := sh.item(u.w.it.r)
	it.setAccess(now.Seconds())
	defer u.end()
	if u.o.Fill != nil || sh.records.n == 0 {
		return sh.commit(it, u.hash, &u.o, now)
	}
	var key [keyBytesMax]byte
	k := Key{Hash: u.hash, Bytes: append(key[:0], it.key()...)}
	res := sh.commit(it, u.hash, &u.o, now)
	sh.carryFloor(k, now)
	return res
}

// Abort gives the chunks back. It may be called at any time.
func (u *Upload) Abort() {
	if u.sh == nil {
		return
	}
	sh := u.sh
	sh.lock()
	defer sh.unlock()
	sh.free(sh.item(u.w.it.r))
	u.end()
}

func (u *Upload) end() {
	u.sh.s.uploadBytes.Add(-u.taken)
	*u = Upload{}
}
