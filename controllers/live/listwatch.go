package live

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

const (
	// minWatchTimeout is the minimum of the requested watch timeout. A random time of up to
	// the same length is added, so that the watches do not all end together.
	minWatchTimeout = 5 * time.Minute
	// pageTimeout bounds the request of one page of a list, because a dead connection may
	// not return an error.
	pageTimeout = 5 * time.Minute
)

// request returns a request for the collection of the kind, or for one object if name is not empty.
func (w *watcher) request(namespace, name string) *rest.Request {
	r := w.key.gvr
	parts := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		parts = []string{"/api", r.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, r.Resource)
	if name != "" {
		parts = append(parts, name)
	}
	// The watcher does its own backoff.
	return w.ix.client.Get().AbsPath(parts...).MaxRetries(0)
}

func (w *watcher) collectionRequest() *rest.Request {
	return w.request("", "").Param("labelSelector", OwnerLabel+"="+w.ix.opts.OwnerID)
}

// list stores all selected objects and returns the resource version from which to watch.
func (w *watcher) list(ctx context.Context) (string, error) {
	select {
	case w.ix.listSlots <- struct{}{}:
		defer func() { <-w.ix.listSlots }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	w.ix.mu.Lock()
	w.listRound++
	w.ix.stats.Lists++
	w.ix.mu.Unlock()
	rv, err := w.listPages(ctx, w.ix.opts.PageSize)
	if isExpired(err) {
		// etcd compacted the history between two pages. A list without pages can't expire;
		// it is also read item by item.
		rv, err = w.listPages(ctx, 0)
	}
	if err != nil {
		return "", err
	}
	if rv == "" {
		return "", fmt.Errorf("listing %s: the list has no resource version", w.key.gvk.Kind)
	}
	w.ix.mu.Lock()
	defer w.ix.mu.Unlock()
	if g := w.ix.groups[w.key.gvk.GroupKind()]; g != nil && g.watches[w.key] == w {
		w.ix.hintUnlisted(g, w, parseResourceVersion(rv))
		if !w.listed {
			// Nobody was notified of the objects of the first list yet.
			w.notifiedReason = Syncing
		}
		w.listed = true
		w.reason = ""
		w.notifyUsers()
	}
	return rv, nil
}

// listPages stores the items of a list, page by page. Size 0 requests all items in one page.
func (w *watcher) listPages(ctx context.Context, size int) (rv string, err error) {
	for next := ""; ; {
		req := w.collectionRequest()
		if size > 0 {
			req = req.Param("limit", strconv.Itoa(size))
		}
		if next != "" {
			req = req.Param("continue", next)
		}
		meta, err := w.listPage(ctx, req)
		if err != nil {
			return "", err
		}
		if next = meta.Continue; next == "" {
			return meta.ResourceVersion, nil
		}
	}
}

func (w *watcher) listPage(ctx context.Context, req *rest.Request) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	body, err := req.Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	meta, err := readPage(body, w.store)
	if err := errors.Join(err, body.Close()); err != nil {
		return metav1.ListMeta{}, fmt.Errorf("listing %s: %w", w.key.gvk.Kind, err)
	}
	return meta, nil
}

// readPage decodes a page of a list and calls f for each item while it reads, so that the whole
// page is never in memory.
func readPage(r io.Reader, f func(raw []byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	d := stdjson.NewDecoder(r)
	if err := expectDelim(d, '{'); err != nil {
		return meta, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return meta, err
		}
		switch key {
		case "metadata":
			err = d.Decode(&meta)
		case "items":
			err = readItems(d, f)
		default:
			var skipped stdjson.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return meta, err
		}
	}
	return meta, expectDelim(d, '}')
}

func readItems(d *stdjson.Decoder, f func(raw []byte) error) error {
	t, err := d.Token()
	if err != nil || t == nil {
		return err
	}
	if t != stdjson.Delim('[') {
		return fmt.Errorf("items of a list: expected [, got %v", t)
	}
	var raw stdjson.RawMessage
	for d.More() {
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := f(raw); err != nil {
			return err
		}
	}
	return expectDelim(d, ']')
}

func expectDelim(d *stdjson.Decoder, want stdjson.Delim) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("reading a list: expected %v, got %v", want, t)
	}
	return nil
}

func (w *watcher) decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		return nil, err
	}
	if u.Object == nil {
		return nil, errInvalidObject
	}
	// List items of built-in kinds have no apiVersion and kind.
	u.SetGroupVersionKind(w.key.gvk)
	return u, nil
}

func (w *watcher) store(raw []byte) error {
	u, err := w.decode(raw)
	if err != nil {
		return err
	}
	return w.storeObject(u)
}

func (w *watcher) storeObject(u *unstructured.Unstructured) error {
	o, version, err := project(u, w.ix.opts.SecretKey)
	if err != nil {
		return err
	}
	w.ix.put(o, version, w)
	return nil
}

type event struct {
	Type   string             `json:"type"`
	Object stdjson.RawMessage `json:"object"`
}

// watch watches the kind from a resource version and returns the last version that it received. The
// error is nil if the API server ended the watch regularly.
func (w *watcher) watch(ctx context.Context, rv string) (string, error) {
	timeout := minWatchTimeout + rand.N(minWatchTimeout)
	// The API server ends the watch at its timeout. The context ends it if the connection is
	// dead.
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute)
	defer cancel()
	body, err := w.collectionRequest().
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("resourceVersion", rv).
		Param("timeoutSeconds", strconv.Itoa(int(timeout.Seconds()))).
		Stream(ctx)
	if err != nil {
		return rv, err
	}
	defer body.Close() //nolint:errcheck // the body is only read
	w.recordConnected()
	d := stdjson.NewDecoder(body)
	for {
		var e event
		if err := d.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return rv, nil
			}
			return rv, fmt.Errorf("watching %s: %w", w.key.gvk.Kind, err)
		}
		eventVersion, err := w.handleEvent(e)
		if err != nil {
			return rv, err
		}
		if eventVersion != "" {
			rv = eventVersion
		}
	}
}

// handleEvent processes an event and returns its resource version.
func (w *watcher) handleEvent(e event) (string, error) {
	if e.Type == "ERROR" {
		var s metav1.Status
		if err := stdjson.Unmarshal(bytes.TrimSpace(e.Object), &s); err != nil {
			return "", fmt.Errorf("watching %s: decoding an ERROR event: %w", w.key.gvk.Kind, err)
		}
		return "", apierrors.FromObject(&s)
	}
	u, err := w.decode(e.Object)
	if err != nil {
		return "", fmt.Errorf("watching %s: %w", w.key.gvk.Kind, err)
	}
	rv := u.GetResourceVersion()
	switch e.Type {
	case "ADDED", "MODIFIED":
		return rv, w.storeObject(u)
	case "DELETED":
		w.ix.mu.Lock()
		defer w.ix.mu.Unlock()
		if g := w.ix.groups[w.key.gvk.GroupKind()]; g != nil && g.watches[w.key] == w {
			w.ix.hint(g, objectKey{u.GetNamespace(), u.GetName()}, u.GetUID(), parseResourceVersion(rv))
		}
	}
	return rv, nil
}
