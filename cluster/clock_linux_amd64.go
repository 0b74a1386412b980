package cluster

import (
	"syscall"
	"time"
)

// systemMillis is the system's clock, in ms of Unix time. time.Now reads the
// monotonic clock beside it, which takes as long again: half of what a read from
// the near cache costs. There Go reads this one without a system call; elsewhere
// it does not.
func systemMillis() int64 {
	var tv syscall.Timeval
	if syscall.Gettimeofday(&tv) != nil {
		return time.Now().UnixMilli()
	}
	return tv.Sec*1000 + tv.Usec/1000
}
