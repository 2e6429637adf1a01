// Package webhook receives what Git servers and others send when something was
// pushed, and has the KsctlSource that takes it looked at. Each source has a path
// of its own that follows from its token. Nothing that is sent is believed but
// that there may be something new: what is fetched, and from where, says the spec.
//
// A request becomes the annotation reconcile.fluxcd.io/requestedAt, as with
// Flux's Receiver: so any replica may receive it, whichever leads. Who is answered
// "accepted" knows that the API server has it. What is "gathered" only this process
// knows of until then: when it ends first, the source's interval makes up for it.
package webhook
