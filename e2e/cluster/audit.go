package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"
)

const (
	auditPolicyFile = "audit-policy.yaml"
	auditLogFile    = "audit.log"
	// sentinel is the query parameter of the requests that [Cluster.AuditMark]
	// and [Cluster.AuditSince] make to know how far the log has come.
	sentinel = "e2e-audit-sentinel"
	// auditTimeout bounds the wait for the log: longer than the API server lets a
	// request take, which is a minute.
	auditTimeout = 75 * time.Second
)

// auditPolicy records each request when it comes and when it has been answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: Metadata
`

func (c *Cluster) auditArgs() []string {
	return []string{
		"--audit-policy-file=" + c.run.path(auditPolicyFile),
		"--audit-log-path=" + c.run.path(auditLogFile),
		"--audit-log-format=json",
		// Each request is written before its answer ends, so what a client has
		// an answer to is in the file.
		"--audit-log-mode=blocking",
		"--audit-log-maxsize=0", // one file, however long
	}
}

// Mark is a point in the audit log.
type Mark struct {
	offset int64
	open   map[string]time.Time // requests that were not answered there, by when they came
}

// AuditMark returns the end of the audit log: requests that had come before the
// call are before the mark. The cluster must have been started with [Options.Audit].
func (c *Cluster) AuditMark(ctx context.Context) (Mark, error) {
	var from Mark
	if end := c.auditEnd.Load(); end != nil {
		from = *end
	}
	_, end, err := c.auditTo(ctx, from)
	return end, err
}

// AuditSince returns the requests that were answered after a mark, in the
// order of their answers. Every request that had come when AuditSince was called
// is among them, so whoever has seen what a request did finds it here: it waits for
// the answers. A watch counts when it ends.
func (c *Cluster) AuditSince(ctx context.Context, mark Mark) (Requests, error) {
	requests, _, err := c.auditTo(ctx, mark)
	return requests, err
}

// auditTo makes a request that nothing else makes and reads the log from a mark
// until that request is in it, and the answers to all that came before. It returns
// the requests in between and the mark behind them.
func (c *Cluster) auditTo(ctx context.Context, from Mark) (Requests, Mark, error) {
	if !c.opts.Audit {
		return nil, Mark{}, errors.New("read the audit log: the cluster was started without Options.Audit")
	}
	id := sentinel + "=" + rand.Text()
	if err := c.clientset.RESTClient().Get().RequestURI("/version?" + id).Do(ctx).Error(); err != nil {
		return nil, Mark{}, fmt.Errorf("read the audit log: make a request to wait for: %w", err)
	}
	file, err := os.Open(c.run.path(auditLogFile))
	if err != nil {
		return nil, Mark{}, fmt.Errorf("read the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()

	r := &auditReader{file: file, offset: from.offset, since: c.apiServerSince, until: id, open: maps.Clone(from.open)}
	if r.open == nil {
		r.open = map[string]time.Time{}
	}
	if err := await(ctx, "the audit log to catch up", auditTimeout, r.advance, c.apiServer); err != nil {
		return nil, Mark{}, err
	}
	end := Mark{offset: r.offset, open: r.open}
	c.auditEnd.Store(&end)
	return r.requests, end, nil
}

// auditReader reads a log that is being written.
type auditReader struct {
	file     *os.File
	offset   int64     // behind the last whole line that was read
	since    time.Time // when the API server was started: what an earlier one did not answer nobody answers
	until    string    // part of the URI of the last request wanted
	requests Requests
	open     map[string]time.Time // not answered yet, by when they came
	awaited  map[string]bool      // those of them that came before the last wanted; nil: that has not come
}

// advance reads the whole lines that there are, and returns nil when nothing is
// missing of what is wanted.
func (r *auditReader) advance(context.Context) error {
	if _, err := r.file.Seek(r.offset, io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(r.file)
	if err != nil {
		return err
	}
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			return fmt.Errorf("%d requests so far, and not the last; %d wait for an answer", len(r.requests), len(r.awaited))
		}
		data = rest
		r.offset += int64(len(line)) + 1
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("parse the line before offset %d: %w", r.offset, err)
		}
		r.take(&event)
		if r.awaited != nil && len(r.awaited) == 0 {
			return nil
		}
	}
}

// take notes that a request came or was answered.
func (r *auditReader) take(event *auditEvent) {
	mine := strings.Contains(event.RequestURI, sentinel)
	switch {
	case event.Stage != "RequestReceived":
		delete(r.open, event.AuditID)
		delete(r.awaited, event.AuditID)
		if !mine {
			r.requests = append(r.requests, event.request())
		}
	case strings.Contains(event.RequestURI, r.until):
		r.awaited = map[string]bool{event.AuditID: true}
		for id, came := range r.open {
			if came.After(r.since) {
				r.awaited[id] = true
			}
		}
	case !mine && !event.lasts():
		r.open[event.AuditID] = event.StageTimestamp
	}
}

// auditEvent is what the rig reads of an event in audit.k8s.io/v1.
type auditEvent struct {
	AuditID    string
	Stage      string
	Verb       string
	RequestURI string
	UserAgent  string
	User       struct{ Username string }
	// ImpersonatedUser is whom the request was made as, if not as User.
	ImpersonatedUser *struct{ Username string }
	ObjectRef        struct{ Resource, Subresource, Namespace, Name, APIGroup, APIVersion string }
	ResponseStatus   struct{ Code int }
	StageTimestamp   time.Time
}

// lasts is true for a request that is answered for as long as the client wants.
func (e *auditEvent) lasts() bool {
	switch e.ObjectRef.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return e.Verb == "watch"
}

func (e *auditEvent) request() Request {
	r := Request{
		Verb:        e.Verb,
		User:        e.User.Username,
		UserAgent:   e.UserAgent,
		Group:       e.ObjectRef.APIGroup,
		Version:     e.ObjectRef.APIVersion,
		Resource:    e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace,
		Name:        e.ObjectRef.Name,
		URI:         e.RequestURI,
		Code:        e.ResponseStatus.Code,
		Answered:    e.StageTimestamp,
	}
	if e.ImpersonatedUser != nil {
		r.ImpersonatedUser = e.ImpersonatedUser.Username
	}
	return r
}
