// Package meta is the wire: it decodes command lines, classic and meta, and
// packets of the binary protocol into a [Request], encodes replies from an
// [Item], and, for lines, does both again from the client's side.
//
// # Words
//
// A line is what stands between two \n. Its words are separated by spaces, and
// by nothing else; the first says the command. A block is the value behind a
// line, ended by \r\n. A flag is a word of a meta line after its key: a letter,
// perhaps with an argument (T30). A reply is a line, for values with a block.
// A packet is a request or a reply of the binary protocol; its head is all of a
// request but the value.
//
//	            server                          client
//	line   ──►  Request.ParseLine               Request.AppendLine, AppendGetLine
//	packet ──►  Request.ParsePacket
//	block  ──►  (streamed, not parsed here)     AppendBlock
//	reply  ◄──  Request.AppendMetaReply,        Reply.Parse
//	            AppendValueHeader, AppendDebug,
//	            Code.AppendTo, Error.AppendTo,
//	            Request.AppendPacketOK and others
//
// # What always holds
//
//  1. What AppendLine writes, ParseLine reads as the same request.
//  2. What the server side writes, Reply.Parse reads, wherever the bytes are cut.
//  3. Nothing is copied and nothing is allocated: slices are views of the bytes
//     that were parsed, replies are appended to the caller's buffer. Only a
//     base64 key is decoded into a buffer, the Request's own.
//  4. Lines, limits and errors are those of memcached 1.6.45, byte for byte.
//
// # What it does not do
//
// It reads and writes no connection, finds no line ends in a stream for the
// server, knows no store, no clock and no rule about expiry, and executes
// nothing. What a flag means is decided where it is executed; here it is only
// decoded.
package meta
