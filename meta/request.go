package meta

// Op is what a request asks for, whatever protocol spelled it.
type Op uint8

const (
	OpNone Op = iota

	// Requests with a key, which the store answers.
	OpGet    // get gets gat gats touch mg
	OpSet    // set add replace append prepend cas ms: a data block follows
	OpDelete // delete md
	OpArith  // incr decr ma
	OpDebug  // me

	// Requests without a key. Their words are in Request.Args.
	OpNoop // mn
	OpVersion
	OpVerbosity
	OpQuit
	OpFlushAll
	OpStats
	OpShutdown
	OpCacheMemlimit
	OpSlabs
	OpLRU
	OpCrawler
	OpWatch
	OpRefreshCerts
	OpConfig // config get

	// Requests of the binary protocol alone: SASL.
	OpAuthList  // which mechanisms there are
	OpAuthStart // Key is the mechanism, the value its first message
	OpAuthStep  // the same for its next one

	// Of a server's debug build alone.
	OpDebugTime
	OpDebugItem
)

// Verb is the word that spelled a request. It decides how the reply is
// written and which statistics count it; the store never sees it.
type Verb uint8

const (
	VerbNone Verb = iota
	VerbGet
	VerbGets
	VerbGat
	VerbGats
	VerbTouch
	VerbSet
	VerbAdd
	VerbReplace
	VerbAppend
	VerbPrepend
	VerbCas
	VerbDelete
	VerbIncr
	VerbDecr
	VerbMetaGet    // mg
	VerbMetaSet    // ms
	VerbMetaDelete // md
	VerbMetaArith  // ma
	VerbMetaDebug  // me
	VerbMetaNoop   // mn
	VerbOther      // a command without a key
)

// verbWords are the words of the verbs that have one of their own.
var verbWords = [...]string{
	VerbGet:        "get",
	VerbGets:       "gets",
	VerbGat:        "gat",
	VerbGats:       "gats",
	VerbTouch:      "touch",
	VerbSet:        "set",
	VerbAdd:        "add",
	VerbReplace:    "replace",
	VerbAppend:     "append",
	VerbPrepend:    "prepend",
	VerbCas:        "cas",
	VerbDelete:     "delete",
	VerbIncr:       "incr",
	VerbDecr:       "decr",
	VerbMetaGet:    "mg",
	VerbMetaSet:    "ms",
	VerbMetaDelete: "md",
	VerbMetaArith:  "ma",
	VerbMetaDebug:  "me",
	VerbMetaNoop:   "mn",
	VerbOther:      "",
}

// String is the word on the wire, empty for VerbNone and VerbOther.
func (v Verb) String() string { return verbWords[v] }

// Meta reports whether v is a meta command.
func (v Verb) Meta() bool { return v >= VerbMetaGet && v <= VerbMetaNoop }

// Mode is the way a set stores: the M flag of ms, or the classic word.
type Mode uint8

const (
	ModeSet Mode = iota
	ModeAdd
	ModeReplace
	ModeAppend
	ModePrepend
	ModeRevalidate // V: the source still has the version that is stored
	ModeAbsent     // N: the source has no such row
)

// Letters is a set of meta flags. Bit i is letter 'A'+i: A-Z, then a-z.
type Letters uint64

// Letter is the set that holds c alone. c is a letter from A to z.
func Letter(c byte) Letters { return 1 << (c - 'A') }

// Has reports whether flag c was given.
func (l Letters) Has(c byte) bool { return l&(1<<(c-'A')) != 0 }

// With is l and flag c.
func (l Letters) With(c byte) Letters { return l | 1<<(c-'A') }

// FlagsMax is the number of flags that a meta request can carry: memcached
// allows 20 words in a line, command and key among them.
const FlagsMax = wordsMetaMax - 2

// KeyMax is the longest key in bytes, as memcached's KEY_MAX_LENGTH. For a
// base64 key it bounds the encoded text.
const KeyMax = 250

// OpaqueMax is the longest opaque token in bytes, without its O. Source:
// memcached's MFLAG_MAX_OPAQUE_LENGTH counts the O.
const OpaqueMax = 31

// ValueMax is the largest length that a set line can give, in bytes. Source:
// memcached's INT_MAX - 2; what a server stores is bounded by its -I.
const ValueMax = 1<<31 - 3

// Request is one decoded request: meta commands, classic ones and packets of
// the binary protocol come out as the same thing. A Request is reused. All its
// slices are views of the line or packet that was decoded or of keyBuf, and are
// valid until that buffer changes or the Request is decoded into again; a copy
// that is to live longer needs its own.
type Request struct {
	Op    Op
	Verb  Verb // of a packet: the classic word that means the same
	Mode  Mode
	Quiet bool // noreply, the q flag, or a quiet opcode
	// HideErrors says that an error reply is not to be sent: classic commands
	// with noreply. The q flag hides no error.
	HideErrors bool
	// Binary says the key was sent in base64 (the b flag).
	Binary bool
	Decr   bool // ma: mode D; decr

	// Packet says that this is a packet of the binary protocol. Its opcode and
	// its opaque go back with the reply.
	Packet       bool
	Opcode       Opcode
	PacketOpaque uint32

	// Key is the raw key, after base64. KeyText is the key as it was sent.
	// A line of get, gets, gat or gats has many keys: they are in Rest.
	Key, KeyText []byte

	// Rest is what follows the word of get and gets, and the exptime of gat
	// and gats, from the first key on. NextKey walks it.
	Rest []byte

	// Has is the set of meta flags given. Classic commands set the flags
	// that mean the same: gets has c, touch and gat have T, cas has C,
	// a get has v, f (and for gets c), a set F and T. Packets do the same, and
	// have k where the reply has the key, C where the header has a CAS, N and J
	// where a number may be made.
	Has Letters

	// Flags are the letters of a meta request in its order. It decides the
	// order of the reply, and what t shows: see Before. Opaque belongs to O.
	Flags  [FlagsMax]byte
	NFlags int
	Opaque []byte

	ValueLen    int    // set: bytes of the data block, without its \r\n; packet: bytes of the value
	Swallow     int    // set, packet: after an Error, bytes of input to throw away: the block with its \r\n, or 0
	ClientFlags uint32 // F, or the flags word of classic sets
	TTL         int64  // T, or exptime, or the delay of flush_all: raw, before the 30-day rule. 32 bits, in packets without a sign
	VivifyTTL   int64  // N, as TTL
	RecacheTTL  int32  // R, seconds left below which one caller wins
	CompareCAS  uint64 // C
	NewCAS      uint64 // E
	Initial     uint64 // J
	Delta       uint64 // D, or the number of incr, decr, verbosity and cache_memlimit

	// Route is what P says, for servers that are nodes of a cluster.
	Route Route

	// Fresh is what G, Y and A say. It is set when Has has one of them.
	Fresh Freshness

	// Args are the words of a command without a key (but for mn, which has
	// none), the command's own word first. NArgs counts them.
	Args  [ArgsMax][]byte
	NArgs int

	keyBuf [KeyMax]byte // base64 keys are decoded into it
}

// ArgsMax is the number of words that a line can have: words beyond it are not
// seen. Source: mcmc's MCMC_PARSER_MAX_TOKENS less its end mark.
const ArgsMax = 23

// Reset makes r empty. ParseLine begins with it; a client resets a Request
// before it fills in the next one.
func (r *Request) Reset() {
	if r.Has&freshFlags != 0 {
		r.Fresh = Freshness{}
	}
	if r.Has&(Letter('P')|Letter('L')) != 0 {
		r.Route = Route{}
	}
	r.Op, r.Verb, r.Mode = OpNone, VerbNone, ModeSet
	r.Quiet, r.HideErrors, r.Binary, r.Decr, r.Packet = false, false, false, false, false
	r.Key, r.KeyText, r.Rest, r.Opaque = nil, nil, nil, nil
	r.Has, r.NFlags, r.NArgs = 0, 0, 0
	r.ValueLen, r.Swallow, r.ClientFlags = 0, 0, 0
	r.TTL, r.VivifyTTL, r.RecacheTTL = 0, 0, 0
	r.CompareCAS, r.NewCAS, r.Initial, r.Delta = 0, 0, 0, 0
}

// AddFlag puts flag c behind the flags of r. Its argument, if it has one, is in
// the field that belongs to it. It panics beyond FlagsMax flags.
func (r *Request) AddFlag(c byte) {
	r.Has |= Letter(c)
	r.Flags[r.NFlags] = c
	r.NFlags++
}

// Before reports whether r has flags a and b, and a stands before b. memcached
// works through the flags in their order, so "t T9" answers the TTL from before
// and "T9 t" the new one; of "N30 T60" on a vivified item the last one counts.
func (r *Request) Before(a, b byte) bool {
	if !r.Has.Has(a) || !r.Has.Has(b) {
		return false
	}
	for _, c := range r.Flags[:r.NFlags] {
		switch c {
		case a:
			return true
		case b:
			return false
		}
	}
	return false
}
