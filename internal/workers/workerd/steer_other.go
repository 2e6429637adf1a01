//go:build !linux

package workerd

import "errors"

// steer is not possible: processes share one socket.
func (l *Listener) steer(uint32) error { return errors.ErrUnsupported }
