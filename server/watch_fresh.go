package server

import (
	"strconv"

	"github.com/quarrycache/quarry/server/store"
)

// watch freshness: what becomes of grants, fills and notices. memcached has no
// such stream, so the form of its lines is ours; fields are as in the others.

// fillNames are the kinds of what is stored with a version.
var fillNames = [...]string{
	store.FillValue:      "value",
	store.FillRevalidate: "revalidation",
	store.FillAbsent:     "absence",
	fillWrite:            "write", // without a grant
}

const fillWrite = store.FillAbsent + 1

// grantNames are the classes of grants.
var grantNames = [...]string{
	store.GrantNone:       "",
	store.GrantForeground: "foreground",
	store.GrantBackground: "background",
	store.GrantStrong:     "strong",
}

// observeFresh makes rec one of e, which is about freshness.
func (rec *record) observeFresh(e *store.Event) {
	rec.at, rec.ttl, rec.idle = int64(e.Now), int64(e.Version), uint32(e.TookMillis)
	switch e.Kind {
	case store.EventGrant:
		rec.kind, rec.status, rec.cmd = lineGrant, uint8(e.Grant), oneIf(e.Early)
	case store.EventFill:
		rec.kind, rec.status = lineFill, uint8(e.Fill)
		if !e.Granted {
			rec.status = uint8(fillWrite)
		}
	case store.EventRefuse:
		rec.kind, rec.status = lineRefuse, uint8(e.Reason)
	case store.EventNotice:
		rec.kind, rec.status, rec.cmd = lineNotice, oneIf(e.Takedown), oneIf(e.Newer)
	case store.EventGiveBack:
		rec.kind = lineGiveBack
	}
}

func oneIf(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// appendFresh appends what a line of the stream has behind its number.
func (rec *record) appendFresh(b []byte) []byte {
	yes := [...]string{"no", "yes"}
	b = append(append(b, " type="...), freshLines[rec.kind-lineGrant]...)
	b = appendURI(append(b, " key="...), rec.text)
	switch rec.kind {
	case lineGrant:
		b = append(append(b, " class="...), grantNames[rec.status]...)
		b = append(append(b, " early="...), yes[rec.cmd]...)
		b = appendNumber(b, " life=", int64(rec.idle))
		b = strconv.AppendUint(append(b, " floor="...), uint64(rec.ttl), 10)
	case lineFill:
		b = append(append(b, " kind="...), fillNames[rec.status]...)
		b = strconv.AppendUint(append(b, " version="...), uint64(rec.ttl), 10)
		b = appendNumber(b, " took=", int64(rec.idle))
		b = appendNumber(b, " size=", int64(rec.size))
	case lineRefuse:
		b = appendNumber(b, " reason=r", int64(rec.status))
		b = strconv.AppendUint(append(b, " version="...), uint64(rec.ttl), 10)
	case lineNotice:
		kinds := [...]string{"stale", "takedown"}
		b = append(append(b, " kind="...), kinds[rec.status]...)
		b = strconv.AppendUint(append(b, " version="...), uint64(rec.ttl), 10)
		b = append(append(b, " news="...), yes[rec.cmd]...)
	}
	b = appendNumber(b, " at=", rec.at)
	return appendNumber(b, " cfd=", int64(rec.cfd))
}

// freshLines are the types of lines, from lineGrant on.
var freshLines = [...]string{"grant", "fill", "refused", "notice", "given_back"}
