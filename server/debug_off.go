//go:build !debug

package server

import (
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// debugState is nothing, but in a build with the tag debug.
type debugState struct{}

func newDebugState(*Config) *debugState { return nil }
func (*debugState) claim(*store.Store)  {}
func (*debugState) close()              {}

// debugTime and debugItem are not there: they are unknown commands.
func (*session) debugTime(w *worker) { w.fail(&w.req, meta.ErrUnknown) }
func (*session) debugItem(w *worker) { w.fail(&w.req, meta.ErrUnknown) }
