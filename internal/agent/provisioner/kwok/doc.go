// Package kwok makes machines that are none: Node objects which kwok (https://kwok.sigs.k8s.io)
// plays, for demonstrations and tests. What goes wrong in a cloud can be had of it, too: see
// [Knobs].
package kwok
