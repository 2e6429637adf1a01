package workerd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// LoadError is the error of a script that workerd does not load.
type LoadError struct{ Message string }

func (e *LoadError) Error() string { return "workerd does not load the script: " + e.Message }

// maxLoadMessage is the largest length of the message of a LoadError, in bytes.
const maxLoadMessage = 500

// maxOutput is the largest part of the output that is kept, in bytes: more than a Secret has, so
// that values in it are complete.
const maxOutput = 2 << 20

// minSecret is the smallest length of a value of a Secret that is replaced in messages, in bytes.
const minSecret = 3

// checkGrace is the time that workerd has to exit after a check.
const checkGrace = 5 * time.Second

// Check starts workerd with one worker, and stops it when its socket listens. It returns a
// *LoadError if workerd exits before. Its message has no values of the environment: it is shown to
// others than those who can read Secrets.
func Check(ctx context.Context, program string, w Worker, env []string) error {
	dir, err := os.MkdirTemp("", "workerd-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	listener, err := Listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	w.Address = listener.Addr().String()
	var stderr head
	p, err := Start(Options{Program: program, ConfigFile: filepath.Join(dir, "workerd.capnp"), Workers: []Worker{w},
		Listeners: map[string]*Listener{w.Name: listener}, Env: env, Stderr: &stderr})
	if err != nil {
		return err
	}
	select {
	case <-p.Listening():
		p.Stop(checkGrace)
		return nil
	case <-p.Exited():
		return &LoadError{Message: stderr.firstError(w.Name, p.State(), env)}
	case <-ctx.Done():
		p.Stop(0)
		return fmt.Errorf("workerd did not load the script in time: %w", ctx.Err())
	}
}

// head keeps the first bytes that are written to it.
type head struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.content.Write(p[:min(len(p), maxOutput-h.content.Len())])
	return len(p), nil
}

// diagnostic is what workerd adds to lines about its own code.
var diagnostic = regexp.MustCompile(`^\S+\.(c\+\+|rs|h):\d+: `)

// firstError returns the first line about the script, without the name of its service and values of
// the environment.
func (h *head) firstError(worker, state string, env []string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	prefix := "service " + worker + ": "
	first := ""
	for line := range strings.Lines(h.content.String()) {
		line = strings.TrimSpace(line)
		if own, found := strings.CutPrefix(line, prefix); found {
			first = own
			break
		}
		if first == "" {
			first = diagnostic.ReplaceAllString(line, "")
		}
	}
	if first == "" {
		first = "it ended with " + state
	}
	first = redact(first, env)
	return strings.ToValidUTF8(first[:min(len(first), maxLoadMessage)], "")
}

// redact replaces values of environment variables in a line, and the lines of values.
func redact(text string, env []string) string {
	var secrets []string
	for _, variable := range env {
		_, value, _ := strings.Cut(variable, "=")
		secrets = append(secrets, value)
		for line := range strings.Lines(value) {
			secrets = append(secrets, strings.TrimSpace(line))
		}
	}
	// A value may be a part of another one.
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, secret := range slices.Compact(secrets) {
		if len(secret) >= minSecret {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}
