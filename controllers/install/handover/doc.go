// Package handover decides which install takes over an object that another one releases.
package handover
