package store

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// The table of records against a map: what is needed is there, unless there was
// no room, and then the one that was due first has gone; its own counts are
// right after each step.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const grantMax = 1000
		retention := Time(rapid.SampledFrom([]int64{3000, 30_000, RetentionMillisLimit}).Draw(t, "retention"))
		most := rapid.IntRange(1, 12).Draw(t, "most")
		rs, err := newRecords(most, retention, grantMax, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rs.close() }()
		now, latest := noon, noon
		model := map[string]record{}
		ended := func(r *record) { r.grant.counted = false }
		name := func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "key")) }
		// agree takes out of the model what may have gone, given that a record
		// may have had to go for that of newcomer, unless that is "".
		agree := func(t *rapid.T, newcomer string) {
			forRoom := newcomer != ""
			latest = max(latest, now)
			var gone []string
			for k, want := range model {
				r := rs.find(key(k))
				switch {
				case r == nil:
					gone = append(gone, k)
				case r.floor != want.floor || r.raised != want.raised || r.grant.sequence != want.grant.sequence || r.grant.next != want.grant.next:
					t.Fatalf("key %s: %+v, want %+v", k, *r, want)
				}
			}
			for _, k := range gone {
				r := model[k]
				delete(model, k)
				due := rs.dueAt(&r)
				if r.grant.counted {
					if r.grant.ends > latest {
						t.Fatalf("key %s has gone while its token is out", k)
					}
					r.grant.counted = false
					due = rs.dueAt(&r)
				}
				if due <= latest {
					continue
				}
				if !forRoom {
					t.Fatalf("key %s has gone %d ms early", k, due-now)
				}
				forRoom = false
				if until := r.raised + retention; r.floor != 0 && until > latest && rs.unknownUntil() < until {
					t.Fatalf("the floor of key %s has gone, and is not unknown", k)
				}
				for other := range model {
					if f := rs.find(key(other)); other != newcomer && f != nil && !f.grant.counted && rs.dueAt(f) < due-2*rs.rest.stepMs {
						t.Fatalf("key %s has gone, which is due %d ms after key %s", k, due-rs.dueAt(f), other)
					}
				}
			}
			if rs.n != len(model) {
				t.Fatalf("%d records, want %d", rs.n, len(model))
			}
		}
		add := func(t *rapid.T, k string) *record {
			_, known := model[k]
			r := rs.add(key(k), now, ended)
			if r == nil {
				for _, o := range model {
					if !o.grant.counted || o.grant.ends <= now-2*rs.tokens.stepMs {
						t.Fatalf("no room for key %s, while %+v is there", k, o)
					}
				}
				return nil
			}
			if known {
				agree(t, "")
			} else {
				model[k] = *r
				agree(t, k)
			}
			return rs.find(key(k))
		}
		sequence := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"floor": func(t *rapid.T) {
				k := name(t)
				if r := add(t, k); r != nil {
					r.floor++
					r.raised = now
					rs.changed(r)
					model[k] = *r
				}
			},
			"token": func(t *rapid.T) {
				k := name(t)
				rs.turn(now, ended)
				agree(t, "")
				if r := add(t, k); r != nil {
					sequence++
					r.grant = grant{sequence: sequence, granted: now, ends: now + Time(rapid.IntRange(1, grantMax).Draw(t, "life")), counted: true}
					rs.changed(r)
					model[k] = *r
				}
			},
			"end": func(t *rapid.T) {
				k := name(t)
				if r := rs.find(key(k)); r != nil {
					r.grant.counted, r.grant.sequence = false, 0
					r.grant.next = now + Time(rapid.SampledFrom([]int{0, 0, 100, grantMax}).Draw(t, "pause"))
					rs.changed(r)
					model[k] = *r
				}
			},
			"turn": func(t *rapid.T) {
				rs.turn(now, ended)
				agree(t, "")
				rs.each(func(r *record) {
					if r.grant.counted && r.grant.ends < now-2*rs.tokens.stepMs {
						t.Fatalf("a token that ended %d ms ago still counts", now-r.grant.ends)
					}
				})
			},
			"time": func(t *rapid.T) {
				now += Time(rapid.SampledFrom([]int{0, 1, 20, 500, 3000, 100_000, RetentionMillisLimit}).Draw(t, "ms"))
			},
			"an older reading": func(t *rapid.T) { now = max(now, latest) - Time(rapid.IntRange(0, 3).Draw(t, "ms")) },
			"": func(t *rapid.T) {
				latest = max(latest, now)
				if err := errors.Join(rs.recount()...); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}
