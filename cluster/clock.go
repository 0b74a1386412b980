//go:build !(linux && amd64)

package cluster

import "time"

// systemMillis is the system's clock, in ms of Unix time.
func systemMillis() int64 { return time.Now().UnixMilli() }
