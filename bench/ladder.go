package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/quarrycache/quarry/cluster"
)

// The ladder of a hot key, from cheap to dear: what each step by itself lets
// through to the source, to the nodes, and to the busiest of them.

// ladderNear is the life in near caches if the configuration has none.
const ladderNear = 500 * time.Millisecond

// LadderWarmup is how long each step should be warmed up at least: nodes take a
// second or two to call a key hot, and only then are copies of it read.
const LadderWarmup = 3 * time.Second

// Ladder is a run for each step of the ladder. Key 0 is the hot one; the last
// step takes key 1 in its place, which is to be split in the map.
type Ladder struct {
	Steps []LadderStep `json:"steps"`
}

// LadderStep is one step: a run, or why there was none.
type LadderStep struct {
	Name    string         `json:"step"`
	LeftOut string         `json:"left_out,omitempty"`
	Report  *ClusterReport `json:"report,omitempty"`
}

// RunLadder runs c once for each step. Its reads are those of Fetch, and go to
// key 0 for a share of HotShare.
func RunLadder(ctx context.Context, c ClusterConfig) (*Ladder, error) {
	near := c.Near
	setDefault(&near, ladderNear)
	c.Fetch, c.Near, c.Copies = true, 0, false
	c.Distribution, c.HotKeys = Hot, 1
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	if c.Keys < 2 {
		return nil, fmt.Errorf("bench: keys %d: the ladder needs 2 or more", c.Keys)
	}
	hot, other, err := ladderPlaces(ctx, &c)
	if err != nil {
		return nil, err
	}
	if hot.Split > 1 {
		return nil, fmt.Errorf("bench: key %s is split: the ladder begins with one that is not", c.name(0))
	}
	withNear, withCopies := c, c
	withNear.Near = near
	withCopies.Copies = true
	l := &Ladder{Steps: []LadderStep{{Name: "merge"}, {Name: "near cache"}, {Name: "copies"}, {Name: "split"}}}
	if len(hot.Copies) == 0 {
		l.Steps[2].LeftOut = "the map has no copies (quarry cluster set --copies)"
	}
	if other.Split < 2 {
		l.Steps[3].LeftOut = fmt.Sprintf("key %s is not split (quarry cluster split %s N)", c.name(1), c.name(1))
	} else {
		l.Steps[3].Name = fmt.Sprintf("split in %d", other.Split)
	}
	for i, config := range []ClusterConfig{c, withNear, withCopies, c} {
		s := &l.Steps[i]
		if s.LeftOut != "" {
			continue
		}
		if c.Progress != nil {
			fmt.Fprintf(c.Progress, "%s\n", s.Name)
		}
		if s.Report, err = runCluster(ctx, config, i == 3); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return l, nil
}

// name is the text of key k.
func (c *ClusterConfig) name(k uint64) string {
	return string(c.keys().append(nil, k))
}

// ladderPlaces is where keys 0 and 1 are.
func ladderPlaces(ctx context.Context, c *ClusterConfig) (hot, other cluster.Place, err error) {
	client, err := cluster.New(c.options())
	if err != nil {
		return hot, other, err
	}
	defer client.Close()
	hot, err = client.Where(ctx, c.name(0))
	if err == nil {
		other, err = client.Where(ctx, c.name(1))
	}
	if err == nil && hot.Epoch == 0 {
		err = errors.New("the ladder needs a cluster, and the server has no map")
	}
	if err != nil {
		err = fmt.Errorf("bench: %w", err)
	}
	return hot, other, err
}

// WriteJSON writes l as JSON, one field a line.
func (l *Ladder) WriteJSON(w io.Writer) error { return writeIndented(w, l) }

// WriteText writes l as a table for people.
func (l *Ladder) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STEP\tREAD/S\tHIT %\tSTALE %\tOTHER %\tNEAR %\tMERGED %\tP50 us\tP99 us\tSOURCE/S\tNODES/S\tBUSIEST/S\tITS SHARE %")
	for _, s := range l.Steps {
		r := s.Report
		if r == nil {
			continue
		}
		o := &r.Outcomes
		share := func(n uint64) float64 { return 100 * ratio(float64(n), float64(o.sum())) }
		busiest := NodeUse{}
		if len(r.Nodes) > 0 {
			busiest = r.Nodes[0]
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\n", s.Name, float64(o.sum())/r.Seconds,
			share(o.Hit), share(o.Stale), share(o.Negative+o.Miss+o.Unavailable), share(r.From.Near), share(r.Merged), r.Latency.P50US, r.Latency.P99US,
			r.Source.LoadsPerSecond, r.ReadsPerSecond, busiest.ReadsPerSecond, 100*busiest.Share)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range l.Steps {
		if s.LeftOut != "" {
			if _, err := fmt.Fprintf(w, "%s: left out, %s\n", s.Name, s.LeftOut); err != nil {
				return err
			}
		}
	}
	return nil
}

// Corrupt is the number of wrong reads in all steps.
func (l *Ladder) Corrupt() (n uint64) {
	for _, s := range l.Steps {
		if s.Report != nil {
			n += s.Report.Corrupt
		}
	}
	return n
}
