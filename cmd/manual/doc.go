// Package manual writes down a command line for those who use it: as a man
// page, and as completions for bash, zsh and fish. The programs describe
// themselves from the definitions that parse their flags, so that what is
// installed beside them cannot drift from them.
//
// A Program is its options, its commands with theirs, and some prose. Nothing
// here knows how they are parsed.
package manual
