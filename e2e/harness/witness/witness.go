// Package witness hears everything that a controller tells while a suite runs,
// and finds the suite's secrets in it.
package witness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	storagev1alpha1 "github.com/ksctl/gitops/api/storage/v1alpha1"
)

// Witness hears and remembers. Its methods may be called from several goroutines at once.
type Witness struct {
	mu      sync.Mutex
	secrets map[string]bool
	told    map[string]*bytes.Buffer

	cluster client.WithWatch
	stop    context.CancelFunc
	watches sync.WaitGroup
}

// Places where every controller tells something; the objects of a kind are one more each.
const (
	Log     = "the log"
	Metrics = "the metrics"
)

// kinds are those whose objects are heard, as lists.
var kinds = func() []schema.GroupVersionKind {
	out := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("EventList")}
	for _, kind := range []string{"KsctlInstall", "KsctlRemove", "KsctlSource", "KsctlInventory"} {
		out = append(out, appsv1.GroupVersion.WithKind(kind+"List"))
	}
	return append(out, storagev1alpha1.GroupVersion.WithKind("ImportStateList"), storagev1alpha1.GroupVersion.WithKind("ExportStateList"), clusterv1.GroupVersion.WithKind("KsctlClusterList"))
}()

// shortest is the least that a secret must have so that finding it means something.
const shortest = 8

// Secret registers a value that nobody may tell, and returns it.
func (w *Witness) Secret(value string) string {
	if len(value) < shortest {
		panic(fmt.Sprintf("the secret %q is so short that it is found anywhere", value))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.secrets == nil {
		w.secrets = map[string]bool{}
	}
	w.secrets[value] = true
	return value
}

// Hear remembers what was told somewhere, such as in a log.
func (w *Witness) Hear(where, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == nil {
		w.told = map[string]*bytes.Buffer{}
	}
	if w.told[where] == nil {
		w.told[where] = &bytes.Buffer{}
	}
	w.told[where].WriteString(text)
	w.told[where].WriteByte('\n')
}

// Writer hears what is written to it.
func (w *Witness) Writer(where string) io.Writer { return writer{w, where} }

type writer struct {
	*Witness
	where string
}

func (w writer) Write(p []byte) (int, error) {
	w.Hear(w.where, string(p))
	return len(p), nil
}

// Watch hears every event of the cluster and every version of our objects, but
// for their specs, which people wrote, until Stop.
func (w *Witness) Watch(ctx context.Context, c client.WithWatch) error {
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.cluster = c
	for _, kind := range kinds {
		list := listOf(kind)
		events, err := c.Watch(ctx, list)
		if err != nil {
			return fmt.Errorf("watching %s: %w", kind.Kind, err)
		}
		w.watches.Go(func() { w.follow(ctx, c, list, events) })
	}
	return nil
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	return list
}

// place is where the objects of a list's kind are heard.
func place(kind schema.GroupVersionKind) string { return strings.TrimSuffix(kind.Kind, "List") + "s" }

// follow hears one kind. A watch ends by itself in the course of a suite, and
// with the API server.
func (w *Witness) follow(ctx context.Context, c client.WithWatch, list *unstructured.UnstructuredList, events watch.Interface) {
	where := place(list.GroupVersionKind())
	for {
		select {
		case <-ctx.Done():
			events.Stop()
			return
		case e, open := <-events.ResultChan():
			if open {
				w.see(where, e.Object)
				continue
			}
		}
		if again, err := c.Watch(ctx, list); err == nil {
			events = again
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *Witness) see(where string, o runtime.Object) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return
	}
	delete(fields, "spec")
	unstructured.RemoveNestedField(fields, "metadata", "managedFields")
	if text, err := json.Marshal(fields); err == nil {
		w.Hear(where, string(text))
	}
}

// Process hears the metrics of controllers that run in this process.
func (w *Witness) Process() error {
	families, err := metrics.Registry.Gather()
	for _, f := range families {
		w.Hear(Metrics, f.String())
	}
	return err
}

// Stop ends the watches.
func (w *Witness) Stop() {
	if w.stop != nil {
		w.stop()
	}
	w.watches.Wait()
}

// Verdict ends the listening. It fails when a secret was told, and when the
// silence means nothing: there was no secret, or nothing was heard in the log, the
// metrics, the events, or any of our objects.
func (w *Witness) Verdict(ctx context.Context) error {
	w.Stop()
	var errs []error
	objects := 0
	for _, kind := range kinds { // a watch may be behind
		list := listOf(kind)
		if err := w.cluster.List(ctx, list); err != nil {
			errs = append(errs, fmt.Errorf("listing %s: %w", kind.Kind, err))
		}
		for i := range list.Items {
			w.see(place(kind), &list.Items[i])
		}
		if kind.Group != corev1.GroupName {
			objects += w.Heard()[place(kind)]
		}
	}
	if len(w.secrets) == 0 {
		errs = append(errs, errors.New("there is no secret to be told"))
	}
	heard := w.Heard()
	for where, length := range map[string]int{Log: heard[Log], Metrics: heard[Metrics], "Events": heard["Events"], "any object": objects} {
		if length == 0 {
			errs = append(errs, fmt.Errorf("nothing was heard in %s", where))
		}
	}
	for _, found := range w.Found() {
		errs = append(errs, fmt.Errorf("a secret was told: %s", found))
	}
	return errors.Join(errs...)
}

// Found are the secrets that were told, and where. It does not repeat them
// whole.
func (w *Witness) Found() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, where := range slices.Sorted(maps.Keys(w.told)) {
		text := w.told[where].String()
		for _, secret := range slices.Sorted(maps.Keys(w.secrets)) {
			for _, form := range forms(secret) {
				at := strings.Index(text, form)
				if at < 0 {
					continue
				}
				out = append(out, fmt.Sprintf("%q in %s, after …%s", secret[:3]+"…", where, text[max(0, at-200):at]))
				break
			}
		}
	}
	return out
}

// Heard is how much was told where.
func (w *Witness) Heard() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for where, text := range w.told {
		out[where] = text.Len()
	}
	return out
}

// forms are how a secret may look: as it is, and as formats and protocols write it.
func forms(secret string) []string {
	quoted := strings.Trim(strconv.Quote(secret), `"`)
	encoded, _ := json.Marshal(secret)
	twice, _ := json.Marshal(string(encoded))
	return append(within(secret), secret, quoted, strings.Trim(string(encoded), `"`), strings.Trim(string(twice), `\"`),
		hex.EncodeToString([]byte(secret)), url.QueryEscape(secret), url.PathEscape(secret))
}

// within is what base64 makes of a secret whatever stands before and after it, such
// as a name in a header: three bytes become four letters, so there are three ways.
func within(secret string) (out []string) {
	for skip := range 3 {
		part := []byte(secret[skip:])
		part = part[:len(part)/3*3]
		out = append(out, base64.StdEncoding.EncodeToString(part), base64.URLEncoding.EncodeToString(part))
	}
	return out
}
