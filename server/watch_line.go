package server

import (
	"strconv"

	"github.com/quarrycache/quarry/server/store"
)

// lineKind is the form of a line.
type lineKind uint8

const (
	lineGet    lineKind = iota // status is a store.Lookup
	lineStore                  // status is a store.Status, cmd an index in storeNames
	lineEvict                  // status is 1 if the item was read
	lineDelete                 // cmd is an index in deleteNames
	lineText                   // text is the line

	// Of freshness: ttl is the version, at the time.
	lineGrant    // status is a store.GrantClass, cmd is 1 if early, idle the life in ms
	lineFill     // status is an index in fillNames, idle how long it took in ms
	lineRefuse   // status is a store.Reason
	lineNotice   // status is 1 for a takedown, cmd is 1 if it was news
	lineGiveBack // nothing more
)

// lookupNames are memcached's words for how a look-up ended.
var lookupNames = [...]string{
	store.LookupMiss:    "not_found",
	store.LookupHit:     "found",
	store.LookupFlushed: "flushed",
	store.LookupExpired: "expired",
}

// storedNames are memcached's words for what became of a value.
var storedNames = [...]string{
	store.OK:           "stored",
	store.Miss:         "not_found",
	store.NotStored:    "not_stored",
	store.Exists:       "exists",
	store.TooLarge:     "too_large",
	store.NoMemory:     "no_memory",
	store.ReadNoMemory: "no_memory",
	store.NonNumeric:   "",        // of arith alone
	store.Refused:      "refused", // Quarry's own
}

// storeNames are the commands that store: those of the modes, and cas.
var storeNames = [...]string{
	store.ModeSet:     "set",
	store.ModeAdd:     "add",
	store.ModeReplace: "replace",
	store.ModeAppend:  "append",
	store.ModePrepend: "prepend",
	storeCas:          "cas",
}

const storeCas = store.ModePrepend + 1

// deleteNames are the commands that delete.
var deleteNames = [...]string{"delete", "md"}

// stream is the stream of the record's line.
func (rec *record) stream() stream {
	switch rec.kind {
	case lineGet:
		return streamFetchers
	case lineStore:
		return streamMutations
	case lineEvict:
		return streamEvictions
	case lineDelete:
		return streamDeletions
	case lineGrant, lineFill, lineRefuse, lineNotice, lineGiveBack:
		return streamFreshness
	}
	return 1 << rec.streamI
}

// appendLine appends the line, as memcached's logger.c prints it.
func (rec *record) appendLine(b []byte) []byte {
	const million = 1_000_000
	b = appendNumber(b, "ts=", rec.micros/million)
	b = appendNumber(b, ".", rec.micros%million) // not padded
	b = appendNumber(b, " gid=", int64(rec.gid))
	switch rec.kind {
	case lineGet:
		b = appendURI(append(b, " type=item_get key="...), rec.text)
		b = append(append(b, " status="...), lookupNames[rec.status]...)
		b = appendNumber(b, " clsid=", int64(rec.class))
		b = appendNumber(b, " cfd=", int64(rec.cfd))
		b = appendNumber(b, " size=", int64(rec.size))
	case lineStore:
		b = appendURI(append(b, " type=item_store key="...), rec.text)
		b = append(append(b, " status="...), storedNames[rec.status]...)
		b = append(append(b, " cmd="...), storeNames[rec.cmd]...)
		b = appendNumber(b, " ttl=", rec.ttl)
		b = appendNumber(b, " clsid=", int64(rec.class))
		b = appendNumber(b, " cfd=", int64(rec.cfd))
		b = appendNumber(b, " size=", int64(rec.size))
	case lineEvict:
		b = appendURI(append(b, " type=eviction key="...), rec.text)
		if rec.status != 0 {
			b = append(b, " fetch=yes"...)
		} else {
			b = append(b, " fetch=no"...)
		}
		b = appendNumber(b, " ttl=", rec.ttl)
		b = appendNumber(b, " la=", int64(rec.idle))
		b = appendNumber(b, " clsid=", int64(rec.class))
		b = appendNumber(b, " size=", int64(rec.size))
	case lineDelete:
		b = appendURI(append(b, " type=deleted key="...), rec.text)
		b = append(append(b, " cmd="...), deleteNames[rec.cmd]...)
		b = appendNumber(b, " clsid=", int64(rec.class))
		b = appendNumber(b, " size=", int64(rec.size))
	case lineText:
		b = append(append(b, ' '), rec.text...)
	default:
		b = rec.appendFresh(b)
	}
	return append(b, '\n')
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}
