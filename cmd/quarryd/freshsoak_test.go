package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/meta"
)

// The soak of freshness: a real server that is stopped, killed and restarted, and
// clients that know the truth. It works like this:
//
//  1. An authority has rows with versions, and knows when each version was
//     committed. Writers commit new ones, and send notices of them: at once, late,
//     twice, out of order, or never; sometimes the row itself, without a grant,
//     and that late and twice too.
//  2. Readers look keys up. One with a grant reads the authority, dawdles, and
//     fills, revalidates, says that there is no row, gives the grant back, or
//     drops dead. Fills are sent twice, and replies thrown away.
//  3. Meanwhile the server is stopped (SIGSTOP), longer than values live at times,
//     killed, and restarted with what it kept in its file.
//  4. Each answer is checked against the authority: no value whose deadline had
//     passed when it was asked for; none that was superseded longer ago than the
//     bound; none as fresh below a version that the server had said yes to; and
//     every byte as the authority has it.
const (
	soakBound    = 3 * time.Second // values live so long from the start of their read
	soakSoft     = time.Second
	soakKeys     = 100
	soakReaders  = 16
	soakWriters  = 2
	soakGrant    = 400                   // ms
	soakTolerant = 20 * time.Millisecond // the server's clock is set at its start

	freshSoakShort = 12 * time.Second
)

// TestFreshnessSoak runs for QUARRY_FRESHNESS_SOAK, or a little while:
// scripts/freshness-soak.
func TestFreshnessSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: a soak is not short")
	}
	length := freshSoakShort
	if word := os.Getenv("QUARRY_FRESHNESS_SOAK"); word != "" {
		var err error
		if length, err = time.ParseDuration(word); err != nil {
			t.Fatal(err)
		}
	}
	k := newFreshSoak(t, false)
	k.run(length)
	if n := len(k.violations); n > 0 {
		t.Errorf("%d violations, the first of them:\n%s", n, strings.Join(k.violations[:min(n, 10)], "\n"))
	}
	n := &k.n
	for what, n := range map[string]int64{
		"fresh reads": n.fresh.Load(), "stale reads": n.stale.Load(), "fills": n.fills.Load(), "revalidations": n.revalidations.Load(),
		"absences": n.absences.Load(), "absent reads": n.absent.Load(), "notices": n.notices.Load(), "writes": n.writes.Load(),
		"fills sent twice": n.twice.Load(), "stops": n.stops.Load(), "kills": n.kills.Load(), "warm restarts": n.warm.Load(),
		"floors checked": n.floorsChecked.Load(), "bounds checked": n.boundsChecked.Load(), "r1": n.refused[1].Load(), "r5": n.refused[5].Load(),
	} {
		if n == 0 {
			t.Errorf("no %s: this was no soak", what)
		}
	}
}

// The same checks find what plain sets and deletes do, or they would be worth
// nothing.
func TestFreshnessSoakFindsPlainSets(t *testing.T) {
	k := newFreshSoak(t, true)
	for range 10 {
		if k.run(time.Second); len(k.violations) > 0 {
			t.Logf("plain sets: %d violations, the first of them:\n%s", len(k.violations), k.violations[0])
			return
		}
	}
	t.Error("plain sets brought nothing old back")
}

// freshSoak is one soak.
type freshSoak struct {
	t     *testing.T
	plain bool // the control: sets and deletes as memcached has them
	start time.Time
	seed  uint64
	file  string
	rows  []*authorityRow

	server atomic.Pointer[process]
	addr   atomic.Pointer[string]
	life   atomic.Int64 // odd while the server is down; what it said yes to before does not hold
	stop   atomic.Bool
	all    sync.WaitGroup

	n struct {
		fresh, stale, absent, miss, waits               atomic.Int64
		fills, revalidations, absences, writes, notices atomic.Int64
		twice, back, dead, lost                         atomic.Int64
		stops, kills, warm                              atomic.Int64
		deadlinesChecked, boundsChecked, floorsChecked  atomic.Int64
		refused                                         [12]atomic.Int64
	}

	mu         sync.Mutex
	violations []string
}

// authorityRow is a row at the source.
type authorityRow struct {
	key string

	mu        sync.Mutex
	committed []time.Duration // of each version, from 1 on
	gone      []bool          // that version is the row's deletion

	// said is the highest version that the server has said yes to, and when: no
	// older one may be fresh after that.
	said     uint64
	saidLife int64
}

func newFreshSoak(t *testing.T, plain bool) *freshSoak {
	k := &freshSoak{t: t, plain: plain, start: time.Now(), seed: uint64(time.Now().UnixNano()), file: filepath.Join(t.TempDir(), "items")}
	t.Logf("seed %d", k.seed)
	for i := range soakKeys {
		k.rows = append(k.rows, &authorityRow{key: fmt.Sprintf("row:%d", i)})
		k.commit(k.rows[i], false)
	}
	k.boot()
	return k
}

// now is the time since the start; unix is a time of that kind in ms of Unix
// time.
func (k *freshSoak) now() time.Duration         { return time.Since(k.start) }
func (k *freshSoak) unix(d time.Duration) int64 { return k.start.UnixMilli() + d.Milliseconds() }
func (k *freshSoak) rng(n uint64) *rand.Rand    { return rand.New(rand.NewPCG(k.seed, n)) }
func (k *freshSoak) row(rng *rand.Rand) *authorityRow {
	return k.rows[min(rng.IntN(soakKeys), rng.IntN(soakKeys))]
}

func (k *freshSoak) commit(r *authorityRow, gone bool) (version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.committed = append(r.committed, k.now())
	r.gone = append(r.gone, gone)
	return uint64(len(r.committed))
}

// read is a query of the source.
func (r *authorityRow) read() (version uint64, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.committed)), r.gone[len(r.gone)-1]
}

// value is the text of a version of the row: some are large.
func (r *authorityRow) value(version uint64) []byte {
	b := fmt.Appendf(nil, "%s=%d;", r.key, version)
	if version%37 == 0 {
		return bytes.Repeat(b, 4000)
	}
	return b
}

func (k *freshSoak) violation(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.violations = append(k.violations, fmt.Sprintf("%v: ", k.now().Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// boot starts the server, with what is left in its file.
func (k *freshSoak) boot() {
	p := start(k.t, "-p", "-1", "-m", "64", "-t", "2", "-e", k.file, "--grant-max-ms", "1000", "--version-range", "row:=1000000")
	addr := p.tcp(k.t)
	k.server.Store(p)
	k.addr.Store(&addr)
}

// run soaks for so long.
func (k *freshSoak) run(length time.Duration) {
	k.stop.Store(false)
	for i := range soakReaders {
		k.all.Go(func() { k.readers(k.rng(uint64(i))) })
	}
	for i := range soakWriters {
		k.all.Go(func() { k.writers(k.rng(uint64(100 + i))) })
	}
	if k.plain {
		time.Sleep(length)
	} else {
		k.faults(k.rng(1000), length)
	}
	k.stop.Store(true)
	k.all.Wait()
	if !k.plain {
		k.report()
	}
}

// faults does things to the server until the time is over.
func (k *freshSoak) faults(rng *rand.Rand, length time.Duration) {
	end := time.Now().Add(length)
	for i := 0; time.Now().Before(end); i++ {
		time.Sleep(min(time.Duration(500+rng.IntN(1500))*time.Millisecond, time.Until(end)))
		p := k.server.Load()
		switch kind := rng.IntN(10); {
		case i == 1 || kind == 0: // killed
			k.life.Add(1)
			p.cmd.Process.Kill()
			<-p.ended
			k.boot()
			k.life.Add(1)
			k.n.kills.Add(1)
		case i == 3 || kind == 1: // restarted with its file: what it said still holds
			p.gone(k.t, unix.SIGUSR1)
			k.boot()
			k.n.warm.Add(1)
		default:
			stopped := time.Duration(20+rng.IntN(400)) * time.Millisecond
			if rng.IntN(8) == 0 {
				stopped = soakBound + 500*time.Millisecond
			}
			p.cmd.Process.Signal(unix.SIGSTOP)
			time.Sleep(stopped)
			p.cmd.Process.Signal(unix.SIGCONT)
			k.n.stops.Add(1)
		}
	}
}

// soakConn is a client's connection, made anew when it is lost.
type soakConn struct {
	k    *freshSoak
	conn net.Conn
	r    *bufio.Reader
	buf  []byte
}

// do sends in, and reads one reply, or none when it is to be thrown away.
func (c *soakConn) do(in []byte, drop bool) (rep meta.Reply, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", *c.k.addr.Load()); err != nil {
			return rep, err
		}
		c.r = bufio.NewReader(c.conn)
	}
	defer func() {
		if err != nil || drop {
			c.conn.Close()
			c.conn = nil
		}
	}()
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err = c.conn.Write(in); err != nil || drop {
		c.k.n.lost.Add(1)
		return rep, err
	}
	c.buf = c.buf[:0]
	for need := 1; ; {
		for len(c.buf) < need {
			if _, err = c.r.Peek(1); err != nil {
				return rep, err
			}
			more := min(c.r.Buffered(), max(need-len(c.buf), 1))
			at := len(c.buf)
			c.buf = append(c.buf, make([]byte, more)...)
			if _, err = io.ReadFull(c.r, c.buf[at:]); err != nil {
				return rep, err
			}
		}
		var n int
		if n, need, err = rep.Parse(c.buf); n > 0 || err != nil {
			return rep, err
		}
	}
}

// said notes that the server has said yes to a version of r, when nothing has
// happened to it since life was read.
func (k *freshSoak) said(r *authorityRow, version uint64, life int64) {
	if life%2 != 0 || k.life.Load() != life {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.saidLife != life || version > r.said {
		r.said, r.saidLife = version, life
	}
}

// holds is the lowest version of r that may be fresh in an answer to what is asked
// now, 0 any.
func (k *freshSoak) holds(r *authorityRow, life int64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.saidLife != life {
		return 0
	}
	return r.said
}

// check holds an answer about r against the authority: that it has version, as
// fresh or stale, was the answer to what was asked then.
func (k *freshSoak) check(r *authorityRow, what string, version, hard, least uint64, stale bool, asked time.Duration, life int64) {
	r.mu.Lock()
	superseded := time.Duration(-1)
	known := version <= uint64(len(r.committed))
	if version < uint64(len(r.committed)) {
		superseded = r.committed[version]
	}
	r.mu.Unlock()
	if !known {
		k.violation("%s %s has version %d, which nobody has committed", r.key, what, version)
		return
	}
	if superseded >= 0 {
		k.n.boundsChecked.Add(1)
		if old := asked - superseded; old > soakBound+soakTolerant {
			k.violation("%s %s has version %d, superseded %v before it was asked for", r.key, what, version, old)
		}
	}
	if hard != 0 {
		k.n.deadlinesChecked.Add(1)
		if past := k.unix(asked) - int64(hard); past > soakTolerant.Milliseconds() {
			k.violation("%s %s version %d came %d ms after its deadline", r.key, what, version, past)
		}
	}
	if !stale && life%2 == 0 && k.life.Load() == life {
		k.n.floorsChecked.Add(1)
		if version < least {
			k.violation("%s %s has version %d as fresh, though %d was known", r.key, what, version, least)
		}
	}
}

// readers look keys up, and fill.
func (k *freshSoak) readers(rng *rand.Rand) {
	c := &soakConn{k: k}
	for !k.stop.Load() {
		r := k.row(rng)
		life := k.life.Load()
		least, asked := k.holds(r, life), k.now()
		in := fmt.Appendf(nil, "mg %s v y a G%d\r\n", r.key, soakGrant)
		if k.plain {
			in = fmt.Appendf(nil, "mg %s v\r\n", r.key)
		}
		rep, err := c.do(in, false)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		f := &rep.Fresh
		switch {
		case rep.Code == meta.CodeVA:
			version := f.Version
			if k.plain {
				fmt.Sscanf(string(rep.Value[bytes.IndexByte(rep.Value, '=')+1:]), "%d", &version)
			}
			if !bytes.Equal(rep.Value, r.value(version)) {
				k.violation("%s with version %d has the value %.60q", r.key, version, rep.Value)
			}
			if rep.Item.Stale {
				k.n.stale.Add(1)
			} else {
				k.n.fresh.Add(1)
			}
			k.check(r, "value", version, f.Hard, least, rep.Item.Stale, asked, life)
		case rep.Code != meta.CodeEN:
			k.violation("mg %s answers %+v", r.key, rep)
		case f.Absent:
			k.n.absent.Add(1)
			k.check(r, "absence", f.Version, 0, least, false, asked, life)
		default:
			k.n.miss.Add(1)
		}
		switch {
		case f.Granted:
			k.fill(c, r, string(f.Token()), rng)
		case k.plain && rep.Code == meta.CodeEN:
			version, _ := r.read()
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			v := r.value(version)
			c.do(fmt.Appendf(nil, "ms %s %d T3\r\n%s\r\n", r.key, len(v), v), false)
		case f.Waits || f.Denied:
			k.n.waits.Add(1)
		}
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	}
}

// fill is what a reader with a grant does.
func (k *freshSoak) fill(c *soakConn, r *authorityRow, token string, rng *rand.Rand) {
	began := k.now()
	time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
	version, gone := r.read()
	switch n := rng.IntN(100); {
	case n < 3:
		k.n.dead.Add(1)
		return // it drops dead
	case n < 6:
		if rep, err := c.do(fmt.Appendf(nil, "md %s G%s\r\n", r.key, token), false); err == nil && rep.Code == meta.CodeHD {
			k.n.back.Add(1)
		}
		return
	case n < 12:
		time.Sleep(time.Duration(rng.IntN(3*soakGrant)) * time.Millisecond) // it dawdles
	default:
		time.Sleep(time.Duration(rng.IntN(15)) * time.Millisecond)
	}
	deadlines := fmt.Sprintf("%d,%d,%d", k.unix(began+soakBound), k.unix(began+soakSoft), k.unix(began))
	v := r.value(version)
	command, count := fmt.Appendf(nil, "ms %s %d G%s Y%d A%s\r\n%s\r\n", r.key, len(v), token, version, deadlines, v), &k.n.fills
	switch {
	case gone:
		command, count = fmt.Appendf(nil, "ms %s 0 MN G%s Y%d A%s\r\n\r\n", r.key, token, version, deadlines), &k.n.absences
	case rng.IntN(2) == 0:
		// It asks whether what is stored is the source's still.
		life := k.life.Load()
		rep, err := c.do(fmt.Appendf(nil, "ms %s 0 MV G%s Y%d A%s\r\n\r\n", r.key, token, version, deadlines), rng.IntN(50) == 0)
		if err != nil || rep.Code == meta.CodeNone {
			return
		}
		if rep.Code == meta.CodeHD {
			k.n.revalidations.Add(1)
			k.said(r, version, life)
			return
		}
		k.n.refused[rep.Fresh.Reason%12].Add(1)
		if rep.Fresh.Reason != 10 {
			return
		}
	}
	life := k.life.Load()
	drop := rng.IntN(20) == 0
	rep, err := c.do(command, drop)
	stored := err == nil && rep.Code == meta.CodeHD
	if stored {
		count.Add(1)
		k.said(r, version, life)
	} else if err == nil && !drop {
		k.n.refused[rep.Fresh.Reason%12].Add(1)
	}
	if drop || rng.IntN(10) == 0 { // once more, as one whose reply was lost
		again, err := c.do(command, false)
		switch {
		case err != nil:
		case again.Code == meta.CodeHD && stored:
			k.violation("the token %s has filled %s twice", token, r.key)
		case again.Code == meta.CodeHD:
			count.Add(1)
			k.said(r, version, life)
		default:
			k.n.twice.Add(1)
			k.n.refused[again.Fresh.Reason%12].Add(1)
		}
	}
}

// late is something that is sent when its time has come.
type late struct {
	at      time.Duration
	r       *authorityRow
	version uint64
	command []byte
	count   *atomic.Int64
}

// writers commit, and tell of it.
func (k *freshSoak) writers(rng *rand.Rand) {
	c := &soakConn{k: k}
	var queue []late
	for !k.stop.Load() {
		r := k.row(rng)
		gone := !k.plain && rng.IntN(8) == 0
		version := k.commit(r, gone)
		at := k.now()
		tell := func(after time.Duration, count *atomic.Int64, format string, args ...any) {
			queue = append(queue, late{at + after, r, version, fmt.Appendf(nil, format, args...), count})
		}
		notice := "md %s I Y%d Lsoak.%d\r\n"
		if rng.IntN(10) == 0 {
			notice = "md %s Y%d Lsoak.%d\r\n"
		}
		n := rng.IntN(100)
		switch {
		case k.plain:
			tell(0, &k.n.notices, "md %s\r\n", r.key)
		case n < 60:
			tell(0, &k.n.notices, notice, r.key, version, n)
		case n < 80: // late, and twice
			tell(time.Duration(rng.IntN(2500))*time.Millisecond, &k.n.notices, notice, r.key, version, n)
			tell(time.Duration(rng.IntN(2500))*time.Millisecond, &k.n.notices, notice, r.key, version, n)
		case n < 90 && !gone: // the row itself, from a queue
			v := r.value(version)
			for range 1 + rng.IntN(2) {
				tell(time.Duration(rng.IntN(2500))*time.Millisecond, &k.n.writes, "ms %s %d Y%d A%d,%d,%d\r\n%s\r\n", r.key, len(v), version,
					k.unix(at+soakBound), k.unix(at+soakSoft), k.unix(at), v)
			}
		}
		queue = slices.DeleteFunc(queue, func(l late) bool {
			if l.at > k.now() {
				return false
			}
			k.tell(c, &l)
			return true
		})
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
}

// tell sends what its time has come for.
func (k *freshSoak) tell(c *soakConn, l *late) {
	life := k.life.Load()
	rep, err := c.do(l.command, false)
	switch {
	case err != nil: // it is lost
	case rep.Code == meta.CodeHD || k.plain && rep.Code == meta.CodeNF:
		l.count.Add(1)
		k.said(l.r, l.version, life)
	default:
		k.n.refused[rep.Fresh.Reason%12].Add(1)
	}
}

// report says what was checked.
func (k *freshSoak) report() {
	n := &k.n
	var refused strings.Builder
	for i := range n.refused {
		if v := n.refused[i].Load(); v > 0 {
			fmt.Fprintf(&refused, " r%d %d", i, v)
		}
	}
	k.t.Logf("%v: reads: %d fresh, %d stale, %d absent, %d misses (%d told to wait); checked: %d bounds, %d deadlines, %d floors",
		k.now().Round(time.Second), n.fresh.Load(), n.stale.Load(), n.absent.Load(), n.miss.Load(), n.waits.Load(),
		n.boundsChecked.Load(), n.deadlinesChecked.Load(), n.floorsChecked.Load())
	k.t.Logf("fills: %d values, %d revalidations, %d absences, %d writes; %d given back, %d holders died, %d sent twice, %d replies lost; %d notices; refused:%s",
		n.fills.Load(), n.revalidations.Load(), n.absences.Load(), n.writes.Load(), n.back.Load(), n.dead.Load(), n.twice.Load(), n.lost.Load(),
		n.notices.Load(), refused.String())
	k.t.Logf("faults: %d stops, %d kills, %d warm restarts; %d violations", n.stops.Load(), n.kills.Load(), n.warm.Load(), len(k.violations))
}
