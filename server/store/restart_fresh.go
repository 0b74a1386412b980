package store

import "github.com/quarrycache/quarry/slab"

// freshMeta is what is written of a shard's freshness. Tokens are not: they
// belong to one start.
type freshMeta struct {
	seed         uint64 // of the records: their keys are known by hashes with it
	rebased      uint64
	unknownUntil Time
	dropped      Time
	floors       []floorMeta
	hidden       []hiddenMeta
}

// floorMeta is a floor of a key that has no value.
type floorMeta struct {
	hash, check uint64
	floor       uint64
	raised      Time
}

// hiddenMeta is a bucket whose owner has changed.
type hiddenMeta struct {
	bucket       uint32
	cas          uint64
	unknownUntil Time
}

// freshMeta is what is to be written down of it.
func (sh *shard) freshMeta() freshMeta {
	fm := freshMeta{
		seed: sh.records.seed, rebased: sh.rebased,
		unknownUntil: sh.unknownUntil, dropped: sh.records.dropped,
	}
	sh.records.each(func(r *record) {
		if r.floor != 0 {
			fm.floors = append(fm.floors, floorMeta{r.hash, r.check, r.floor, r.raised})
		}
	})
	if o := sh.owned; o != nil {
		for b, cas := range o.items {
			if cas != 0 || o.unknownUntil[b] != 0 {
				fm.hidden = append(fm.hidden, hiddenMeta{uint32(b), cas, o.unknownUntil[b]})
			}
		}
	}
	return fm
}

func (fm *freshMeta) write(w *metaWriter) {
	for _, v := range []uint64{fm.seed, fm.rebased, uint64(fm.unknownUntil), uint64(fm.dropped)} {
		w.u64(v)
	}
	w.u32(uint32(len(fm.floors)))
	for _, f := range fm.floors {
		for _, v := range []uint64{f.hash, f.check, f.floor, uint64(f.raised)} {
			w.u64(v)
		}
	}
	w.u32(uint32(len(fm.hidden)))
	for _, h := range fm.hidden {
		w.u32(h.bucket)
		w.u64(h.cas)
		w.u64(uint64(h.unknownUntil))
	}
}

// floorsMax bounds the floors that metadata can have, which are as many as a
// store for the largest arena keeps by itself.
const floorsMax = slab.ArenaMaxBytes / recordsPerByte

func parseFreshMeta(r *metaReader) freshMeta {
	fm := freshMeta{seed: r.u64(), rebased: r.u64(), unknownUntil: r.time(), dropped: r.time()}
	for range r.count("floors", floorsMax) {
		fm.floors = append(fm.floors, floorMeta{r.u64(), r.u64(), r.u64(), r.time()})
		if r.err != nil {
			return fm
		}
	}
	for range r.count("hidden buckets", Buckets) {
		fm.hidden = append(fm.hidden, hiddenMeta{r.u32() % Buckets, r.u64(), r.time()})
	}
	return fm
}

// time is a moment that can be counted with, else 0.
func (r *metaReader) time() Time {
	if v := r.u64(); v <= DeadlineMax {
		return Time(v)
	}
	return 0
}

// takeFresh takes over what metadata says of floors, and of items that are
// hidden.
func (ad *adoption) takeFresh() {
	sh, fm := ad.sh, &ad.meta.fresh
	sh.rebased = min(fm.rebased, sh.casOf(ad.meta.seq))
	sh.unknownUntil = fm.unknownUntil
	sh.records.seed, sh.records.dropped = fm.seed, fm.dropped
	for _, f := range fm.floors {
		sh.records.restore(f, ad.now, sh.uncount)
	}
	for _, h := range fm.hidden {
		sh.hide(int(h.bucket), min(h.cas, sh.casOf(ad.meta.seq)), h.unknownUntil)
	}
	if !ad.clean {
		ad.forgetFloors()
	}
}

// forgetFloors is what follows if floors may have been lost.
func (ad *adoption) forgetFloors() {
	ad.sh.unknownUntil = ad.now + Time(ad.sh.s.fresh.cfg.RetentionMillis)
}

// recoverFresh is takeFresh without metadata. What was hidden is in the file.
func (ad *adoption) recoverFresh(rebased uint64) {
	sh := ad.sh
	sh.rebased = rebased
	ad.forgetFloors()
	for b := range Buckets {
		cas, ok := sh.s.file.hidden(sh.id, b)
		if !ok || cas > sh.casOf(sh.seq) {
			cas = sh.casOf(sh.seq)
		}
		if cas != 0 {
			sh.hide(b, cas, sh.unknownUntil)
		}
	}
}

// hide hides the items of bucket b with a CAS up to cas.
func (sh *shard) hide(b int, cas uint64, unknownUntil Time) {
	if sh.owned == nil {
		sh.owned = new(ownership)
	}
	sh.owned.items[b], sh.owned.unknownUntil[b] = cas, unknownUntil
	sh.owned.highest = max(sh.owned.highest, cas)
	sh.keepHidden(b)
}

// suspect marks an item as stale if it has a version: a notice of a newer one
// may have been missed.
func (it *item) suspect() {
	if it.tag&hasExtra == 0 {
		return
	}
	if x := it.extra(); x.version != 0 && !x.absent {
		it.setTag(it.tag | stale | winSent)
	}
}
