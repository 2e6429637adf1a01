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
	// sentinel is the query parameter of the requests by which [Cluster.AuditMark] and
	// [Cluster.AuditSince] detect how far the log has been written.
	sentinel = "e2e-audit-sentinel"
	// auditTimeout bounds the wait for the log. It is longer than the API server's request timeout,
	// which is a minute.
	auditTimeout = 75 * time.Second
)

// auditPolicy records each request twice: on receipt and on completion.
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
		// The API server logs each request before it completes the response. So every request that
		// a client has a response to is in the file.
		"--audit-log-mode=blocking",
		"--audit-log-maxsize=0", // no rotation
	}
}

// Mark is a position in the audit log.
type Mark struct {
	offset  int64
	pending map[string]time.Time // receipt time of the requests without a response at the position, by audit ID
}

// AuditMark returns the end of the audit log. Requests that the API server received before the call
// are before the mark. The cluster must have been started with [Options.Audit].
func (c *Cluster) AuditMark(ctx context.Context) (Mark, error) {
	var from Mark
	if end := c.lastMark.Load(); end != nil {
		from = *end
	}
	_, end, err := c.readAudit(ctx, from)
	return end, err
}

// AuditSince returns the requests that completed after a mark, in the order of completion. It waits
// for the completion of every request that the API server received before the call, so a caller
// that has observed the effect of a request finds the request here. A watch completes when it ends.
func (c *Cluster) AuditSince(ctx context.Context, mark Mark) (Requests, error) {
	requests, _, err := c.readAudit(ctx, mark)
	return requests, err
}

// readAudit makes a unique sentinel request and reads the log from a mark until the log contains
// the sentinel and the completion of all requests received before it. It returns the requests in
// between and the mark after them.
func (c *Cluster) readAudit(ctx context.Context, from Mark) (Requests, Mark, error) {
	if !c.opts.Audit {
		return nil, Mark{}, errors.New("reading the audit log: the cluster was started without Options.Audit")
	}
	id := sentinel + "=" + rand.Text()
	if err := c.clientset.RESTClient().Get().RequestURI("/version?" + id).Do(ctx).Error(); err != nil {
		return nil, Mark{}, fmt.Errorf("reading the audit log: making the sentinel request: %w", err)
	}
	file, err := os.Open(c.run.path(auditLogFile))
	if err != nil {
		return nil, Mark{}, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()

	r := &auditReader{file: file, offset: from.offset, serverStarted: c.apiServerStarted, sentinelURI: id,
		pending: maps.Clone(from.pending)}
	if r.pending == nil {
		r.pending = map[string]time.Time{}
	}
	if err := Await(ctx, "the audit log to be complete", auditTimeout, r.advance, c.apiServer); err != nil {
		return nil, Mark{}, err
	}
	end := Mark{offset: r.offset, pending: r.pending}
	c.lastMark.Store(&end)
	return r.requests, end, nil
}

// auditReader reads a log while the API server writes it.
type auditReader struct {
	file          *os.File
	offset        int64     // after the last complete line that was read
	serverStarted time.Time // start of the API server; requests open at an earlier one never complete
	sentinelURI   string    // part of the URI of the sentinel request
	requests      Requests
	pending       map[string]time.Time // receipt time of requests without a response, by audit ID
	awaited       map[string]bool      // open requests received before the sentinel; nil before the sentinel is read
}

// advance reads the complete lines written so far. It returns nil when the sentinel and all awaited
// requests have completed.
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
			return fmt.Errorf("%d requests read; %d requests without a response", len(r.requests), len(r.awaited))
		}
		data = rest
		r.offset += int64(len(line)) + 1
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("parsing the line before offset %d: %w", r.offset, err)
		}
		r.record(&event)
		if r.awaited != nil && len(r.awaited) == 0 {
			return nil
		}
	}
}

// record records the receipt or the completion of a request.
func (r *auditReader) record(event *auditEvent) {
	isSentinel := strings.Contains(event.RequestURI, sentinel)
	switch {
	case event.Stage != "RequestReceived":
		delete(r.pending, event.AuditID)
		delete(r.awaited, event.AuditID)
		if !isSentinel {
			r.requests = append(r.requests, event.request())
		}
	case strings.Contains(event.RequestURI, r.sentinelURI):
		r.awaited = map[string]bool{event.AuditID: true}
		for id, received := range r.pending {
			if received.After(r.serverStarted) {
				r.awaited[id] = true
			}
		}
	case !isSentinel && !event.longRunning():
		r.pending[event.AuditID] = event.StageTimestamp
	}
}

// auditEvent has the fields of an audit.k8s.io/v1 Event that are read.
type auditEvent struct {
	AuditID    string
	Stage      string
	Verb       string
	RequestURI string
	UserAgent  string
	User       struct{ Username string }
	// ImpersonatedUser is nil if the request impersonates no user.
	ImpersonatedUser *struct{ Username string }
	ObjectRef        struct{ Resource, Subresource, Namespace, Name, APIGroup, APIVersion string }
	ResponseStatus   struct{ Code int }
	StageTimestamp   time.Time
}

// longRunning returns true for a request whose response lasts until the client ends it.
func (e *auditEvent) longRunning() bool {
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
		Completed:   e.StageTimestamp,
	}
	if e.ImpersonatedUser != nil {
		r.ImpersonatedUser = e.ImpersonatedUser.Username
	}
	return r
}
