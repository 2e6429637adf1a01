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
	// watchFor is the least time that a watch is asked for; up to as much again is
	// added, so that not all end at once.
	watchFor = 5 * time.Minute
	// pageWithin bounds a request of a list: a connection may be dead and not say so.
	pageWithin = 5 * time.Minute
)

// request of the kind's collection, or of an object if a name is given.
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
	// Waiting between attempts is ours to do.
	return w.ix.client.Get().AbsPath(parts...).MaxRetries(0)
}

func (w *watcher) selected() *rest.Request {
	return w.request("", "").Param("labelSelector", OwnerLabel+"="+w.ix.opts.Owner)
}

// list stores every selected object and returns the resource version to watch from.
func (w *watcher) list(ctx context.Context) (string, error) {
	select {
	case w.ix.lists <- struct{}{}:
		defer func() { <-w.ix.lists }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	w.ix.mu.Lock()
	w.round++
	w.ix.stats.lists++
	w.ix.mu.Unlock()
	rv, err := w.pages(ctx, w.ix.opts.PageSize)
	if isExpired(err) {
		// The history went between two pages. As a whole the list can't expire, and
		// is read item by item all the same.
		rv, err = w.pages(ctx, 0)
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
		w.ix.unlisted(g, w, revision(rv))
		if !w.listed {
			// What the list stored was told to nobody yet.
			w.told = Syncing
		}
		w.listed = true
		w.reason = ""
		w.tell()
	}
	return rv, nil
}

// pages stores the items of a list in pages of a size; 0 for all in one.
func (w *watcher) pages(ctx context.Context, size int) (rv string, err error) {
	next := ""
	for {
		req := w.selected()
		if size > 0 {
			req = req.Param("limit", strconv.Itoa(size))
		}
		if next != "" {
			req = req.Param("continue", next)
		}
		meta, err := w.page(ctx, req)
		if err != nil {
			return "", err
		}
		if meta.Continue == "" {
			return meta.ResourceVersion, nil
		}
		next = meta.Continue
	}
}

func (w *watcher) page(ctx context.Context, req *rest.Request) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, pageWithin)
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

// readPage hands each item of a list to f as it is read, so that a page is
// never in memory as a whole.
func readPage(r io.Reader, f func(raw []byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	d := stdjson.NewDecoder(r)
	if err := expect(d, '{'); err != nil {
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
	return meta, expect(d, '}')
}

func readItems(d *stdjson.Decoder, f func(raw []byte) error) error {
	t, err := d.Token()
	if err != nil || t == nil {
		return err
	}
	if t != stdjson.Delim('[') {
		return fmt.Errorf("items of a list begin with %v", t)
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
	return expect(d, ']')
}

func expect(d *stdjson.Decoder, want stdjson.Delim) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%v where %v was expected", t, want)
	}
	return nil
}

func (w *watcher) decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		return nil, err
	}
	if u.Object == nil {
		return nil, errNoName
	}
	// Items of a list of a built-in kind come without these two.
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

// watch follows the kind from a resource version and returns the last one that
// it saw. The error is nil when the API server ended the watch in good order.
func (w *watcher) watch(ctx context.Context, rv string) (string, error) {
	ask := watchFor + rand.N(watchFor)
	// The API server ends the watch; if its word does not get through, we do.
	ctx, cancel := context.WithTimeout(ctx, ask+time.Minute)
	defer cancel()
	body, err := w.selected().
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("resourceVersion", rv).
		Param("timeoutSeconds", strconv.Itoa(int(ask.Seconds()))).
		Stream(ctx)
	if err != nil {
		return rv, err
	}
	defer body.Close() //nolint:errcheck // nothing was written
	w.connected()
	d := stdjson.NewDecoder(body)
	for {
		var e event
		if err := d.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return rv, nil
			}
			return rv, fmt.Errorf("watching %s: %w", w.key.gvk.Kind, err)
		}
		at, err := w.handle(e)
		if err != nil {
			return rv, err
		}
		if at != "" {
			rv = at
		}
	}
}

// handle returns the resource version that an event stands for.
func (w *watcher) handle(e event) (string, error) {
	if e.Type == "ERROR" {
		var s metav1.Status
		if err := stdjson.Unmarshal(bytes.TrimSpace(e.Object), &s); err != nil {
			return "", fmt.Errorf("watching %s: an error that can't be read: %w", w.key.gvk.Kind, err)
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
			w.ix.hint(g, name{u.GetNamespace(), u.GetName()}, u.GetUID(), revision(rv))
		}
	}
	return rv, nil
}
