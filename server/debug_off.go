//go:build !debug

package server

import "github.com/quarrycache/quarry/meta"

// debugState is nothing, but in a build with the tag debug.
type debugState struct{}

func (*debugState) init(*Server) {}
func (*debugState) close()       {}

// debugTime and debugItem are not there: they are unknown commands.
func (*session) debugTime(w *worker) { w.fail(&w.req, meta.ErrUnknown) }
func (*session) debugItem(w *worker) { w.fail(&w.req, meta.ErrUnknown) }
