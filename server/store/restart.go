package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// Restart says what a store with a File found when it was opened.
type Restart struct {
	Found     bool   // there was a file, and not an empty one
	Refused   string // why the store starts empty all the same
	Recovered bool   // the items were found without metadata

	Items          uint64 // that are there again
	ItemsDropped   uint64 // of a damaged file: not believed
	PagesDamaged   int    // the same; what they held is not counted as items
	OrderLost      int    // shards whose eviction order was guessed from the times of access
	AccountsFlawed int    // shards that were emptied, as what they had to forget is not known
}

// Restart says what the store found in its file. It is zero without one.
func (s *Store) Restart() Restart { return s.restart }

// source is where the items of a store come from.
type source struct {
	file  *memFile
	meta  *metadata // nil: none, or not usable
	empty bool      // nothing is taken over
}

// openFile opens c's memory file and decides whether what is in it can be
// taken over. If so, the number of shards and the size of pages are the
// file's. The metadata is gone afterwards.
func (c *Config) openFile(rs *Restart) (src source, err error) {
	mf, err := openMemFile(c.File)
	if err != nil {
		return src, err
	}
	src = source{file: mf, empty: true}
	st, ok, fresh, err := mf.super()
	if err != nil {
		return src, err
	}
	meta, why, err := readMeta(c.File)
	if err != nil {
		return src, err
	}
	rs.Found = !fresh
	switch {
	case fresh && meta != nil:
		rs.Refused = "there is metadata, but no memory file"
	case fresh:
		return src, nil
	case !ok:
		rs.Refused = "it is not a memory file of this version, or its first bytes are damaged"
	default:
		with := *c
		if !c.CompatSlabs { // which has one shard and its own pages
			with.Shards, with.PageBytes = int(st.shards), int(st.pageBytes)
		}
		want := with.settings(with.newTable())
		if rs.Refused = st.differs(&want); rs.Refused != "" {
			break
		}
		if why == "" && (meta.run != mf.run || !meta.fits(&st)) {
			why = "its metadata belongs to another file"
		}
		if why != "" {
			if !c.Recover {
				rs.Refused = why
				break
			}
			err, meta = meta.close(), nil
		}
		rs.Recovered = meta == nil
		*c = with
		src.meta, src.empty = meta, false
		return src, err
	}
	return src, meta.close()
}

// fits reports whether m could be of a file with these settings.
func (m *metadata) fits(st *settings) bool {
	if len(m.shards) != int(st.shards) {
		return false
	}
	for i := range m.shards {
		if sm := &m.shards[i]; len(sm.classes) != int(st.classes)+chainedClasses || sm.seq > casMax/uint64(st.shards) {
			return false
		}
	}
	return true
}

// inParallel calls f for each shard, for as many at a time as there are
// processors, and joins the errors.
func (s *Store) inParallel(f func(sh *shard) error) error {
	errs := make([]error, len(s.shards))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, sh := range s.shards {
		free <- struct{}{}
		wg.Go(func() {
			errs[i] = f(sh)
			<-free
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Save writes what the next Open needs to go on with the items in the file.
// No other call may be under way, and none but Close may follow. A store
// without a File has nothing to save.
func (s *Store) Save() error {
	if s.file == nil {
		return nil
	}
	m := &metadata{run: s.file.run, delimiter: s.cfg.Tenants.Delimiter, shards: make([]shardMeta, len(s.shards))}
	err := s.inParallel(func(sh *shard) error {
		m.shards[sh.id] = sh.meta()
		return nil
	})
	if err == nil {
		err = s.file.f.Sync()
	}
	if err != nil {
		return err
	}
	return m.save(s.file.path, func(i int, w io.Writer) error { return s.shards[i].order.WriteSketch(w) })
}

// meta is what is to be written down of the shard.
func (sh *shard) meta() shardMeta {
	sh.lock()
	defer sh.unlock()
	if sh.move.page != 0 {
		sh.a.AbortEmptying()
		sh.move = move{}
	}
	sm := shardMeta{
		seq: sh.seq, flushed: sh.flushed, flushAt: sh.flushAt,
		level: uint32(sh.idx.level), split: sh.idx.split, items: uint64(sh.idx.items),
		window: sh.order.WindowPct(), inserts: sh.balance.inserts,
		sketchBytes: sh.order.SketchSize(),
		fresh:       sh.freshMeta(),
	}
	for c, b := range sh.balance.of {
		sm.classes = append(sm.classes, classMeta{sh.order.State(c), b})
	}
	for n := range sh.a.Pages() {
		p := pageMeta{PageUse: sh.a.PageUse(n)}
		if p.Class >= 0 {
			p.sum = sh.pageSum(n)
		}
		sm.pages = append(sm.pages, p)
	}
	if sh.tenants != nil {
		for i := 1 + sh.tenants.nNamed; i < len(sh.tenants.rows); i++ {
			sm.tenants = append(sm.tenants, string(sh.tenants.rows[i].name))
		}
	}
	return sm
}

func (sh *shard) pageSum(n uint32) uint32 {
	pageBytes := sh.s.table.PageBytes()
	return crc32.Checksum(sh.a.Bytes(uint64(n)*uint64(pageBytes), pageBytes), castagnoli)
}

// adopt takes over what is in the file.
func (s *Store) adopt(src source, now Time) error {
	var mu sync.Mutex // the sums in s.restart
	return s.inParallel(func(sh *shard) error {
		ad := adoption{sh: sh, now: now, clean: true, owner: make(map[slab.Ref]slab.Ref)}
		if src.meta != nil {
			ad.meta = &src.meta.shards[sh.id]
			ad.readSketch(src.meta.f)
			ad.sameTenants = src.meta.delimiter == s.cfg.Tenants.Delimiter
		}
		ad.run()
		mu.Lock()
		defer mu.Unlock()
		rs := &s.restart
		rs.Items += uint64(sh.idx.items)
		rs.ItemsDropped += ad.dropped
		rs.PagesDamaged += ad.pagesDamaged
		rs.OrderLost += int(number(ad.orderLost))
		rs.AccountsFlawed += int(number(ad.flushed))
		return nil
	})
}

// adoption takes over what is in the arena of a shard.
//
// It goes over the chunks twice. First it judges: chunks that are no items,
// though they say so, are marked pending, and those that are go into the
// index. Then it counts what is left, and links what is free.
type adoption struct {
	sh          *shard
	meta        *shardMeta // nil: there is nothing but the file
	sameTenants bool       // meta names the tenants that had a row
	now         Time

	clean   bool                  // so far all is as meta says
	chained []slab.Ref            // large items not judged yet
	owner   map[slab.Ref]slab.Ref // piece: first chunk of its item
	lists   *lru.Adoption         // of the items that stay
	seqMax  uint64                // the latest store of all items

	batch, sorted []placing // see place

	dropped      uint64 // items not believed
	pagesDamaged int
	orderLost    bool // the order is not that of before
	flushed      bool // all items are gone, see recoverMarks
}

// readSketch reads the sketch of the shard's order. An order without it learns
// again who is asked for.
func (ad *adoption) readSketch(f *os.File) {
	sm := ad.meta
	_ = ad.sh.order.ReadSketch(io.NewSectionReader(f, sm.sketchOff, sm.sketchBytes), sm.sketchBytes)
}

func (ad *adoption) run() {
	sh := ad.sh
	sh.lock()
	defer sh.unlock()
	sh.now = ad.now
	ad.takePages()
	ad.sizeIndex()
	for n := uint32(1); n < sh.a.Pages(); n++ {
		ad.judgePage(n)
	}
	for _, r := range ad.chained {
		ad.judge(sh.item(r))
	}
	ad.placeAll()
	ad.batch, ad.sorted = nil, nil
	ad.lists = sh.order.BeginAdoption()
	ad.takeTenants()
	for n := uint32(1); n < sh.a.Pages(); n++ {
		ad.countPage(n)
	}
	sh.a.Adopted()
	if ad.meta != nil && uint64(sh.idx.items) != ad.meta.items {
		ad.lose()
	}
	ad.takeOrder()
	ad.takeMarks()
	sh.keepMarks()
}

// lose notes that something is not as it was.
func (ad *adoption) lose() { ad.clean = false }

// takePages gives the arena the pages that metadata names, or else the
// arena's ledger.
func (ad *adoption) takePages() {
	a := ad.sh.a
	var pages []slab.PageUse
	if ad.meta == nil {
		ad.lose()
		pages, ad.pagesDamaged = a.Ledgered()
	} else {
		for _, p := range ad.meta.pages {
			pages = append(pages, p.PageUse)
		}
	}
	ad.pagesDamaged += a.Adopt(pages)
	if ad.pagesDamaged > 0 {
		ad.lose()
	}
}

// sizeIndex makes the index as large as it was, or as large as it would be
// with the items that seem to be there: splitting it bucket by bucket would
// take longer.
func (ad *adoption) sizeIndex() {
	sh := ad.sh
	if ad.meta != nil && sh.idx.resize(ad.meta.level, ad.meta.split) {
		return
	}
	items := 0
	for n := uint32(1); n < sh.a.Pages(); n++ {
		page := sh.a.Page(n)
		for i := range page.N {
			if sh.a.Tag(page.At(i)).State() >= slab.StateItem {
				items++
			}
		}
	}
	for level := uint32(indexLevelMin); ; level++ {
		full := loadMax << level
		if items <= 2*full {
			split := max(items-full+loadMax-1, 0) / loadMax
			sh.idx.resize(level, uint32(min(split, 1<<level-1)))
			return
		}
	}
}

// judgePage judges all in page n but large items, which need other pages.
func (ad *adoption) judgePage(n uint32) {
	sh := ad.sh
	page := sh.a.Page(n)
	if page.Class < 0 {
		return
	}
	pageBytes := int64(sh.s.table.PageBytes())
	sh.a.Populate(int64(n)*pageBytes, pageBytes)
	if ad.meta != nil && sh.pageSum(n) != ad.meta.pages[n].sum {
		sh.a.Disown(n)
		ad.pagesDamaged++
		ad.lose()
		return
	}
	for i := range page.N {
		it := sh.item(page.At(i))
		switch {
		case it.tag.State() < slab.StateItem:
		case it.tag&chained != 0:
			ad.chained = append(ad.chained, it.r)
		default:
			ad.judge(it)
		}
	}
}

// judge notes that an item is to go into the index, or marks its chunk as none.
func (ad *adoption) judge(it item) {
	sh := ad.sh
	h, ok := sh.sound(it)
	if ok && ad.meta == nil {
		ok = sh.sealed(it)
	}
	seq := uint64(0)
	if it.tag&explicitCAS == 0 {
		seq = it.cas() / uint64(len(sh.s.shards))
	}
	if !ok || ad.meta != nil && seq > ad.meta.seq {
		ad.reject(it)
		return
	}
	ad.seqMax = max(ad.seqMax, seq)
	ad.place(h, it.r)
	if it.tag&chained != 0 {
		for p := it.firstPiece(); p != 0; p = sh.a.Next(p) {
			ad.owner[p] = it.r
		}
	}
}

func (ad *adoption) reject(it item) {
	it.setTag(slab.MakeTag(slab.StatePending, 0))
	ad.dropped++
	ad.lose()
}

// countPage counts what is left in page n, and frees the rest.
func (ad *adoption) countPage(n uint32) {
	sh := ad.sh
	page := sh.a.Page(n)
	for i := range page.N {
		it := sh.item(page.At(i))
		switch state := it.tag.State(); {
		case state >= slab.StateItem:
			sh.a.Keep(it.r)
			ad.count(it)
		case state == slab.StatePiece && ad.owned(it.r):
			sh.a.Keep(it.r)
		default:
			sh.a.Drop(it.r)
		}
	}
}

func (ad *adoption) owned(piece slab.Ref) bool {
	head, ok := ad.owner[piece]
	return ok && ad.sh.a.Tag(head).State() >= slab.StateItem
}

// count is link for an item that is in the index and its list already.
func (ad *adoption) count(it item) {
	sh := ad.sh
	c := sh.orderClass(it)
	n := &sh.classes[c]
	n.items++
	n.memRequested += uint64(sh.footprint(it))
	n.payload += uint64(it.payload())
	if it.tag&chained != 0 {
		sh.pieceBytes += it.pieceHeaders()
	}
	if it.tag&explicitCAS != 0 {
		sh.explicit++
	}
	if it.tag&hasExtra != 0 {
		sh.nExtra++
		it.suspect()
	}
	if sh.sizes != nil {
		sh.sizes.add(sh.footprint(it))
	}
	sh.noteExpiry(it)
	ad.lists.Add(c, it.r)
	if sh.tenants != nil {
		sh.tenants.adopt(it.key())
		sh.charge(it)
	}
}

// takeTenants gives those that had a row one again, as far as there is room.
// Their accounts are counted from the items.
func (ad *adoption) takeTenants() {
	t := ad.sh.tenants
	if t == nil || !ad.sameTenants {
		return
	}
	for _, name := range ad.meta.tenants {
		t.adopt(append([]byte(name), t.delimiter))
	}
}

// takeMarks takes over what items are judged by.
func (ad *adoption) takeMarks() {
	sh := ad.sh
	if ad.meta == nil {
		ad.recoverMarks()
		return
	}
	sh.seq, sh.flushed, sh.flushAt = ad.meta.seq, ad.meta.flushed, ad.meta.flushAt
	sh.flushed = min(sh.flushed, sh.casOf(sh.seq))
	ad.takeFresh()
	sh.sweepMarked()
	sh.order.SetWindowPct(ad.meta.window)
	sh.balance.inserts = ad.meta.inserts
	for c := range ad.meta.classes {
		sh.balance.of[c] = ad.meta.classes[c].classBalance
		sh.order.SetStay(c, ad.meta.classes[c].Stay)
	}
}

// casSkip is how many stores may have happened after the last one of which
// anything is left, at most: their numbers are not given out again. Some hours
// of nothing but stores that leave nothing behind.
const casSkip = 1 << 36

// recoverMarks is takeMarks without metadata. If it is not known what was
// flushed, all is.
func (ad *adoption) recoverMarks() {
	sh := ad.sh
	mk, ok := sh.s.file.marks(sh.id)
	if ok {
		ok = mk.seq <= sh.seqMax() && mk.flushAt <= never
	}
	if !ok {
		mk = marks{}
	}
	sh.seq = min(max(ad.seqMax, mk.seq), sh.seqMax()) + casSkip
	ad.recoverFresh(mk.rebased)
	if !ok || max(mk.flushed, mk.rebased) > sh.casOf(sh.seq) {
		ad.flushed = true
		sh.flush()
		return
	}
	sh.flushed, sh.flushAt = mk.flushed, uint32(mk.flushAt)
	sh.sweepMarked()
}

// sweepMarked has the marks hold, and makes the sweeper look for items that one
// of them has made gone.
func (sh *shard) sweepMarked() {
	sh.settleMarks()
	if sh.flushed > 0 || sh.rebased > 0 || sh.owned != nil {
		sh.sweepAll()
	}
}

// Warm reports whether the store goes on after a graceful stop.
func (rs *Restart) Warm() bool { return rs.Found && rs.Refused == "" && !rs.Recovered }

// Lost reports whether something that was in the file is not there again.
func (rs *Restart) Lost() bool {
	return rs.Refused != "" || rs.ItemsDropped > 0 || rs.PagesDamaged > 0 || rs.AccountsFlawed > 0
}

// String is the report in one line, for a log.
func (rs *Restart) String() string {
	switch {
	case rs.Refused != "":
		return "starting with an empty cache: " + rs.Refused
	case !rs.Found:
		return "starting with an empty cache: the memory file is new"
	}
	text := fmt.Sprintf("%d items are back", rs.Items)
	if rs.Recovered {
		text = fmt.Sprintf("%d items recovered", rs.Items)
	}
	if rs.ItemsDropped > 0 || rs.PagesDamaged > 0 {
		text += fmt.Sprintf("; not believed: %d items and all of %d pages", rs.ItemsDropped, rs.PagesDamaged)
	}
	if rs.AccountsFlawed > 0 {
		text += fmt.Sprintf("; %d shards are empty, as it is not known what was flushed", rs.AccountsFlawed)
	}
	return text
}
