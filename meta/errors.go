package meta

// Error is an error reply. Its zero value is no error. What a client can cause
// is an Error or a [Status], never a Go error. All of memcached's error lines
// stand here and nowhere else.
type Error uint8

const (
	ErrNone Error = iota

	// While a line is decoded.

	ErrUnknown       // no such command
	ErrBadLine       // too few words, a key over KeyMax, a bad number
	ErrHTTP          // a web browser: it gets no reply, the connection is closed
	ErrBadExptime    // touch, gat, gats, flush_all
	ErrBadDelta      // incr, decr
	ErrInvalidFlag   // a letter that is no flag, or a digit
	ErrDuplicateFlag // the same letter twice
	ErrTooManyFlags  // over 20 words
	ErrBadKey64      // not base64
	ErrBadToken      // N, T, R, C or E without a good number
	ErrBadInitial    // J, but for ma
	ErrBadMetaDelta  // D, but for ma
	ErrArithFlag     // ma: whatever is wrong with its flags
	ErrSetMode       // ms: M
	ErrArithMode     // ma: M
	ErrOpaqueTooLong // O over OpaqueMax
	ErrVersionRange  // mg: Y too far above what is known

	// While a packet is decoded: the connection is closed.

	ErrPacketMagic // no packet begins here: it gets no reply
	ErrPacketShort // the body is shorter than what it should hold
	ErrPacketLong  // a body over PacketBodyMax
	ErrPacketForm  // lengths that the opcode cannot have, a key over KeyMax

	// While a request is executed.

	ErrBadChunk            // the data block does not end in \r\n
	ErrTooLarge            // over the item limit
	ErrStoreNoMemory       // no room for the item
	ErrReadNoMemory        // room ran out while the value arrived
	ErrNoMemory            // incr, decr, ma, md with x
	ErrNewItemNoMemory     // ma that makes an item
	ErrNonNumeric          // incr, decr, ma on a value that is no number
	ErrRefcount            // too many replies in flight refer to one item
	ErrGetNoMemory         // no room for a reply to get
	ErrRequestNoMemory     // no room for a request; the connection is closed
	ErrStatsNoMemory       // no room for statistics
	ErrReplyTooLong        // a reply line over its buffer
	ErrStorageType         // an outcome that no reply exists for
	ErrTooManyConnections  // over -c: answered, then closed
	ErrFlushNotAllowed     // -F
	ErrShutdownNotEnabled  // without -A
	ErrShutdownMode        // a word that is not graceful
	ErrStatsLine           // stats cachedump with too few words
	ErrStatsClass          // stats cachedump of no class
	ErrStatsDetailUsage    // stats detail with a strange word
	ErrStatsDetailNotAllow // -X
	ErrStatsDumpNotAllow   // -X

	// Memory limit and slabs.

	ErrMemlimitTooSmall
	ErrMemlimitTooLarge
	ErrMemlimitFixed
	ErrReassignBusy
	ErrReassignClass
	ErrReassignNoSpare
	ErrReassignSame
	ErrReassignDisabled
	ErrAutomoveWindow

	// Order and crawler.

	ErrLRUPercent
	ErrLRUFactor
	ErrCrawlerStart
	ErrCrawlerStop
	ErrCrawlerSleep
	ErrCrawlerBusy
	ErrCrawlerClass
	ErrCrawlerNoItems
	ErrCrawlerFailed
	ErrCrawlerDisabled
	ErrMetadumpNotAllowed
	ErrMetadumpPipelined
	ErrMgdumpNotAllowed
	ErrMgdumpPipelined
	ErrDumpLocked

	// Watchers and certificates.

	ErrWatchNotAllowed
	ErrWatchPipelined
	ErrWatchersMax
	ErrWatchFailed
	ErrNoTLS

	// Clusters.

	ErrNoMap       // config get, before there is a map
	ErrNotOwner    // --misrouted refuse
	ErrSplit       // a plain write to a key that is split
	ErrUnreachable // the owner of the key cannot be asked

	// Authentication (-Y).

	ErrUnauthenticated
	ErrAuthTooLong
	ErrAuthFormat
	ErrAuthTermination
	ErrAuthFailed

	// Authentication (-S): packets alone.

	ErrPacketUnauthenticated // the connection is closed
	ErrMechanismName         // the name of a mechanism is too long
	ErrAuthNoMemory          // its message is too long

	errorCount
)

// errorLines are the replies, with their ends.
var errorLines = [errorCount]string{
	ErrUnknown:       "ERROR\r\n",
	ErrBadLine:       "CLIENT_ERROR bad command line format\r\n",
	ErrBadExptime:    "CLIENT_ERROR invalid exptime argument\r\n",
	ErrBadDelta:      "CLIENT_ERROR invalid numeric delta argument\r\n",
	ErrInvalidFlag:   "CLIENT_ERROR invalid flag\r\n",
	ErrDuplicateFlag: "CLIENT_ERROR duplicate flag\r\n",
	ErrTooManyFlags:  "CLIENT_ERROR options flags are too long\r\n",
	ErrBadKey64:      "CLIENT_ERROR error decoding key\r\n",
	ErrBadToken:      "CLIENT_ERROR bad token in command line format\r\n",
	ErrBadInitial:    "CLIENT_ERROR invalid numeric initial value\r\n",
	ErrBadMetaDelta:  "CLIENT_ERROR invalid numeric delta value\r\n",
	ErrArithFlag:     "CLIENT_ERROR invalid or duplicate flag\r\n",
	ErrSetMode:       "CLIENT_ERROR invalid mode for ms M token\r\n",
	ErrArithMode:     "CLIENT_ERROR invalid mode for ma M token\r\n",
	ErrOpaqueTooLong: "CLIENT_ERROR opaque token too long\r\n",
	ErrVersionRange:  "CLIENT_ERROR version out of range\r\n",

	ErrBadChunk:            "CLIENT_ERROR bad data chunk\r\n",
	ErrTooLarge:            "SERVER_ERROR object too large for cache\r\n",
	ErrStoreNoMemory:       "SERVER_ERROR out of memory storing object\r\n",
	ErrReadNoMemory:        "SERVER_ERROR Out of memory during read\r\n",
	ErrNoMemory:            "SERVER_ERROR out of memory\r\n",
	ErrNewItemNoMemory:     "SERVER_ERROR Out of memory allocating new item\r\n",
	ErrNonNumeric:          "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
	ErrRefcount:            "SERVER_ERROR refcount overflow during fetch\r\n",
	ErrGetNoMemory:         "SERVER_ERROR out of memory writing get response\r\n",
	ErrRequestNoMemory:     "SERVER_ERROR out of memory reading request\r\n",
	ErrStatsNoMemory:       "SERVER_ERROR out of memory writing stats\r\n",
	ErrReplyTooLong:        "SERVER_ERROR output line too long\r\n",
	ErrStorageType:         "SERVER_ERROR Unhandled storage type.\r\n",
	ErrTooManyConnections:  "ERROR Too many open connections\r\n",
	ErrFlushNotAllowed:     "CLIENT_ERROR flush_all not allowed\r\n",
	ErrShutdownNotEnabled:  "SERVER_ERROR: shutdown not enabled\r\n",
	ErrShutdownMode:        "CLIENT_ERROR invalid shutdown mode\r\n",
	ErrStatsLine:           "CLIENT_ERROR bad command line\r\n",
	ErrStatsClass:          "CLIENT_ERROR Illegal slab id\r\n",
	ErrStatsDetailUsage:    "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
	ErrStatsDetailNotAllow: "CLIENT_ERROR stats detail not allowed\r\n",
	ErrStatsDumpNotAllow:   "CLIENT_ERROR stats cachedump not allowed\r\n",

	ErrMemlimitTooSmall: "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
	ErrMemlimitTooLarge: "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
	ErrMemlimitFixed:    "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
	ErrReassignBusy:     "BUSY currently processing reassign request\r\n",
	ErrReassignClass:    "BADCLASS invalid src or dst class id\r\n",
	ErrReassignNoSpare:  "NOSPARE source class has no spare pages\r\n",
	ErrReassignSame:     "SAME src and dst class are identical\r\n",
	ErrReassignDisabled: "CLIENT_ERROR slab reassignment disabled\r\n",
	ErrAutomoveWindow:   "CLIENT_ERROR automove window too low or too high\r\n",

	ErrLRUPercent:         "ERROR hot and warm pcts must not exceed 80\r\n",
	ErrLRUFactor:          "ERROR hot/warm age factors must be greater than 0\r\n",
	ErrCrawlerStart:       "ERROR failed to start lru crawler thread\r\n",
	ErrCrawlerStop:        "ERROR failed to stop lru crawler thread\r\n",
	ErrCrawlerSleep:       "CLIENT_ERROR sleep must be one second or less\r\n",
	ErrCrawlerBusy:        "BUSY currently processing crawler request\r\n",
	ErrCrawlerClass:       "BADCLASS invalid class id\r\n",
	ErrCrawlerNoItems:     "NOTSTARTED no items to crawl\r\n",
	ErrCrawlerFailed:      "ERROR an unknown error happened\r\n",
	ErrCrawlerDisabled:    "CLIENT_ERROR lru crawler disabled\r\n",
	ErrMetadumpNotAllowed: "ERROR metadump not allowed\r\n",
	ErrMetadumpPipelined:  "ERROR cannot pipeline other commands before metadump\r\n",
	ErrMgdumpNotAllowed:   "ERROR key dump not allowed\r\n",
	ErrMgdumpPipelined:    "ERROR cannot pipeline other commands before mgdump\r\n",
	ErrDumpLocked:         "ERROR locked try again later\r\n",

	ErrWatchNotAllowed: "CLIENT_ERROR watch commands not allowed\r\n",
	ErrWatchPipelined:  "ERROR cannot pipeline other commands before watch\r\n",
	ErrWatchersMax:     "WATCHER_TOO_MANY log watcher limit reached\r\n",
	ErrWatchFailed:     "WATCHER_FAILED failed to add log watcher\r\n",
	ErrNoTLS:           "Error TLS not enabled\r\n",

	ErrNoMap:       "SERVER_ERROR no map\r\n",
	ErrNotOwner:    "SERVER_ERROR not the owner\r\n",
	ErrSplit:       "SERVER_ERROR key is split\r\n",
	ErrUnreachable: "SERVER_ERROR owner unreachable\r\n",

	ErrUnauthenticated: "CLIENT_ERROR unauthenticated\r\n",
	ErrAuthTooLong:     "CLIENT_ERROR auth token too long\r\n",
	ErrAuthFormat:      "CLIENT_ERROR bad authentication token format\r\n",
	ErrAuthTermination: "CLIENT_ERROR bad command line termination\r\n",
	ErrAuthFailed:      "CLIENT_ERROR authentication failure\r\n",
}

// AppendTo appends the reply line with its \r\n: nothing for ErrNone and
// ErrHTTP, and for those that only packets cause.
func (e Error) AppendTo(dst []byte) []byte { return append(dst, errorLines[e]...) }

// String is the reply line with its \r\n.
func (e Error) String() string { return errorLines[e] }

// Closes reports whether the connection is to be closed, after e's reply.
func (e Error) Closes() bool {
	switch e {
	case ErrHTTP, ErrRequestNoMemory, ErrTooManyConnections,
		ErrPacketMagic, ErrPacketShort, ErrPacketLong, ErrPacketForm, ErrPacketUnauthenticated:
		return true
	}
	return false
}

// PacketStatus is the outcome of a request in the reply of the binary protocol.
type PacketStatus uint16

const (
	PacketOK           PacketStatus = 0x00
	PacketNotFound     PacketStatus = 0x01
	PacketExists       PacketStatus = 0x02 // the CAS differs; add of what is there
	PacketTooLarge     PacketStatus = 0x03
	PacketInvalid      PacketStatus = 0x04
	PacketNotStored    PacketStatus = 0x05 // append and prepend of nothing
	PacketNonNumeric   PacketStatus = 0x06
	PacketAuthError    PacketStatus = 0x20
	PacketAuthContinue PacketStatus = 0x21
	PacketUnknown      PacketStatus = 0x81
	PacketNoMemory     PacketStatus = 0x82
	PacketTemporary    PacketStatus = 0x86 // memcached's protocol names it, and never sends it
)

// packetTexts are the bodies of replies that have a status alone. Source:
// memcached's write_bin_error.
var packetTexts = [...]string{
	PacketNotFound:   "Not found",
	PacketExists:     "Data exists for key.",
	PacketTooLarge:   "Too large.",
	PacketInvalid:    "Invalid arguments",
	PacketNotStored:  "Not stored.",
	PacketNonNumeric: "Non-numeric server-side value for incr or decr",
	PacketAuthError:  "Auth failure.",
	PacketUnknown:    "Unknown command",
	PacketNoMemory:   "Out of memory",
}

// packetErrors are the errors that packets can cause. Where memcached knows
// more than the status, it says so.
var packetErrors = [errorCount]struct {
	status PacketStatus
	text   string // "" is that of the status
}{
	ErrUnknown:               {PacketUnknown, ""},
	ErrTooLarge:              {PacketTooLarge, ""},
	ErrStoreNoMemory:         {PacketNoMemory, "Out of memory allocating item"},
	ErrReadNoMemory:          {PacketNoMemory, "Out of memory during read"},
	ErrNoMemory:              {PacketNoMemory, "Out of memory incrementing value"},
	ErrNewItemNoMemory:       {PacketNoMemory, "Out of memory allocating new item"},
	ErrNonNumeric:            {PacketNonNumeric, ""},
	ErrGetNoMemory:           {PacketNoMemory, ""},
	ErrReplyTooLong:          {PacketTooLarge, ""},
	ErrFlushNotAllowed:       {PacketAuthError, ""},
	ErrStatsDetailNotAllow:   {PacketNotFound, ""},
	ErrStatsDetailUsage:      {PacketNotFound, ""},
	ErrPacketShort:           {PacketUnknown, ""},
	ErrPacketLong:            {PacketInvalid, ""},
	ErrPacketForm:            {PacketInvalid, ""},
	ErrPacketUnauthenticated: {PacketAuthError, ""},
	ErrAuthFailed:            {PacketAuthError, ""},
	ErrMechanismName:         {PacketInvalid, ""},
	ErrAuthNoMemory:          {PacketNoMemory, ""},
	ErrNotOwner:              {PacketTemporary, "Not the owner"},
	ErrSplit:                 {PacketTemporary, "Key is split"},
	ErrUnreachable:           {PacketTemporary, "Owner unreachable"},
}
