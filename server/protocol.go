package server

import "strings"

// protocol is what a listener's connections speak.
type protocol uint8

const (
	protocolAuto protocol = iota // the first byte of each connection says
	protocolASCII
	protocolBinary
)

// protocolNames are the protocols as `stats settings` shows them.
var protocolNames = [...]string{"auto-negotiate", "ascii", "binary"}

// String is the protocol as `stats settings` shows it.
func (p protocol) String() string { return protocolNames[p] }

// parseProtocol reads -B.
func parseProtocol(name string) (p protocol, ok bool) {
	switch name {
	case "", "auto":
		return protocolAuto, true
	case "ascii":
		return protocolASCII, true
	case "binary":
		return protocolBinary, true
	}
	return protocolAuto, false
}

// listenerProtocol reads the name in proto[name], which may be abbreviated. A
// name that is none is passed over, as in memcached.
func listenerProtocol(name string) (p protocol, ok bool) {
	switch {
	case strings.HasPrefix("ascii", name):
		return protocolASCII, true
	case strings.HasPrefix("binary", name):
		return protocolBinary, true
	case strings.HasPrefix("negotiating", name):
		return protocolAuto, true
	}
	return protocolAuto, false
}
