// Package leakscan records the output of a controller while a suite runs (logs, metrics, events and
// object statuses) and searches it for the suite's secret values.
package leakscan

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// Scanner records output and searches it for secret values. It is safe for concurrent use.
type Scanner struct {
	mu      sync.Mutex
	secrets map[string]bool
	output  map[string]*bytes.Buffer

	cluster client.WithWatch
	stop    context.CancelFunc
	watches sync.WaitGroup
}

// Names of the outputs that every controller has. The objects of each scanned kind are one more
// output, named after the kind.
const (
	Log     = "the log"
	Metrics = "the metrics"
)

// scannedKinds are the list kinds whose objects are recorded.
var scannedKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("EventList"),
	appsv1.GroupVersion.WithKind("KsctlInstallList"),
	appsv1.GroupVersion.WithKind("KsctlRemoveList"),
	appsv1.GroupVersion.WithKind("KsctlSourceList"),
	appsv1.GroupVersion.WithKind("KsctlInventoryList"),
	storagev1alpha1.GroupVersion.WithKind("ImportStateList"),
	storagev1alpha1.GroupVersion.WithKind("ExportStateList"),
	clusterv1.GroupVersion.WithKind("KsctlClusterList"),
}

// minSecretLength is the minimum length of a secret value, in bytes. Shorter values occur by
// accident.
const minSecretLength = 8

// AddSecret registers a value that must not occur in any output, and returns it.
func (w *Scanner) AddSecret(value string) string {
	if len(value) < minSecretLength {
		panic(fmt.Sprintf("secret %q is shorter than %d bytes and would be found by accident", value, minSecretLength))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.secrets == nil {
		w.secrets = map[string]bool{}
	}
	w.secrets[value] = true
	return value
}

// Record adds text to an output, such as [Log].
func (w *Scanner) Record(output, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.output == nil {
		w.output = map[string]*bytes.Buffer{}
	}
	if w.output[output] == nil {
		w.output[output] = &bytes.Buffer{}
	}
	w.output[output].WriteString(text)
	w.output[output].WriteByte('\n')
}

// Write records a part of the [Log].
func (w *Scanner) Write(p []byte) (int, error) {
	w.Record(Log, string(p))
	return len(p), nil
}

// Watch records every Event of the cluster and every version of our objects until Stop. It excludes
// specs, which users write.
func (w *Scanner) Watch(ctx context.Context, c client.WithWatch) error {
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.cluster = c
	for _, kind := range scannedKinds {
		list := listOf(kind)
		events, err := c.Watch(ctx, list)
		if err != nil {
			return fmt.Errorf("watching %s: %w", kind.Kind, err)
		}
		w.watches.Go(func() { w.watchKind(ctx, c, list, events) })
	}
	return nil
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	return list
}

// outputName returns the name of the output for the objects of a list kind.
func outputName(kind schema.GroupVersionKind) string {
	return strings.TrimSuffix(kind.Kind, "List") + "s"
}

// watchKind records the objects of one kind. It restarts the watch, which times out during a suite
// and ends with the API server.
func (w *Scanner) watchKind(ctx context.Context, c client.WithWatch, list *unstructured.UnstructuredList,
	events watch.Interface) {
	where := outputName(list.GroupVersionKind())
	for {
		select {
		case <-ctx.Done():
			events.Stop()
			return
		case e, open := <-events.ResultChan():
			if open {
				w.recordObject(where, e.Object)
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

func (w *Scanner) recordObject(where string, o runtime.Object) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return
	}
	delete(fields, "spec")
	unstructured.RemoveNestedField(fields, "metadata", "managedFields")
	if text, err := json.Marshal(fields); err == nil {
		w.Record(where, string(text))
	}
}

// RecordProcessMetrics records the metrics of the controllers in this process.
func (w *Scanner) RecordProcessMetrics() error {
	families, err := metrics.Registry.Gather()
	for _, f := range families {
		w.Record(Metrics, f.String())
	}
	return err
}

// Stop ends the watches.
func (w *Scanner) Stop() {
	if w.stop != nil {
		w.stop()
	}
	w.watches.Wait()
}

// Check stops the watches and returns an error if an output contains a secret value. If all specs
// have run, it also returns an error if the search proves nothing: no secret was added, or nothing
// was recorded from the log, the metrics, the events, or any of our objects.
func (w *Scanner) Check(ctx context.Context, allSpecs bool) error {
	w.Stop()
	var errs []error
	objects := 0
	for _, kind := range scannedKinds { // the watches may lag
		list := listOf(kind)
		if err := w.cluster.List(ctx, list); err != nil {
			errs = append(errs, fmt.Errorf("listing %s: %w", kind.Kind, err))
		}
		for i := range list.Items {
			w.recordObject(outputName(kind), &list.Items[i])
		}
		if kind.Group != corev1.GroupName {
			objects += w.recorded(outputName(kind))
		}
	}
	if allSpecs {
		errs = append(errs, w.missing(objects)...)
	}
	for _, found := range w.Leaks() {
		errs = append(errs, fmt.Errorf("secret value leaked: %s", found))
	}
	return errors.Join(errs...)
}

// missing returns an error for each precondition of a search that proves something. objects is the
// number of bytes recorded from our objects.
func (w *Scanner) missing(objects int) (errs []error) {
	if len(w.secrets) == 0 {
		errs = append(errs, errors.New("no secret value was added"))
	}
	for where, length := range map[string]int{Log: w.recorded(Log), Metrics: w.recorded(Metrics),
		"Events": w.recorded("Events"), "any object": objects} {
		if length == 0 {
			errs = append(errs, fmt.Errorf("nothing was recorded from %s", where))
		}
	}
	return errs
}

// Leaks returns the secret values found in the output, with the output's name. It repeats only the
// first three bytes of a value.
func (w *Scanner) Leaks() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, where := range slices.Sorted(maps.Keys(w.output)) {
		text := w.output[where].String()
		for _, secret := range slices.Sorted(maps.Keys(w.secrets)) {
			for _, form := range encodings(secret) {
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

// recorded returns the number of bytes recorded from an output.
func (w *Scanner) recorded(output string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := w.output[output]; text != nil {
		return text.Len()
	}
	return 0
}

// encodings returns the forms in which a secret value may occur: verbatim, and as common formats
// and protocols encode it.
func encodings(secret string) []string {
	quoted := strings.Trim(strconv.Quote(secret), `"`)
	encoded, _ := json.Marshal(secret)
	twice, _ := json.Marshal(string(encoded))
	return append(base64Encodings(secret), secret, quoted, strings.Trim(string(encoded), `"`),
		strings.Trim(string(twice), `\"`),
		hex.EncodeToString([]byte(secret)), url.QueryEscape(secret), url.PathEscape(secret))
}

// base64Encodings returns the base64 encodings of a secret value inside a longer text, such as a
// user name in a header. Base64 encodes three bytes as four letters, so there are three alignments.
func base64Encodings(secret string) (out []string) {
	for skip := range 3 {
		part := []byte(secret[skip:])
		part = part[:len(part)/3*3]
		out = append(out, base64.StdEncoding.EncodeToString(part), base64.URLEncoding.EncodeToString(part))
	}
	return out
}
