package scriptsapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

const (
	// accountLabel is the label of the objects of an account.
	accountLabel = "accounts"
	// formatAnnotation is the format of a script: formatModules or formatServiceWorker.
	formatAnnotation = "workers.ksctl.com/script-format"
	// modifiedAnnotation is when the script was last changed, in the format of RFC 3339.
	modifiedAnnotation = "workers.ksctl.com/modified-on"
	// versionAnnotation is the id of the deployed version: 32 hexadecimal digits.
	versionAnnotation = "workers.ksctl.com/version-id"

	formatModules       = "modules"
	formatServiceWorker = "service-worker"
)

const (
	// firstNumber and lastNumber are the ports of workers.
	firstNumber = 8080
	lastNumber  = 65535
	// maxScripts is the maximum number of workers of an account.
	maxScripts = 100
)

var (
	accountPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`)
	scriptPattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

func kind(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "workers.ksctl.com", Version: "v1alpha1", Kind: name}
}

// deployment is the WorkerDeployment of a script.
type deployment struct{ *unstructured.Unstructured }

// template is spec.template of a WorkerDeployment.
type template struct {
	ScriptName        string     `json:"scriptName"`
	WorkerNumber      int64      `json:"workerNumber"`
	SecretRef         *secretRef `json:"secretRef,omitempty"`
	EnvPrefix         *string    `json:"envPrefix,omitempty"`
	CompatibilityDate string     `json:"compatibilityDate,omitempty"`
	ScriptURLs        []string   `json:"scriptUrls"`
}

type secretRef struct {
	Name string `json:"name"`
}

// template returns the template, as far as it has the expected form.
func (d deployment) template() (t template) {
	fields, _, _ := unstructured.NestedMap(d.Object, "spec", "template")
	content, err := json.Marshal(fields)
	if err == nil {
		_ = json.Unmarshal(content, &t)
	}
	return t
}

// secretName returns the name of the Secret with the bindings; "" without one.
func (t template) secretName() string {
	if t.SecretRef == nil {
		return ""
	}
	return t.SecretRef.Name
}

// etag returns a hash of what the script runs.
func (t template) etag() string {
	sum := sha256.New()
	for _, u := range t.ScriptURLs {
		f, ok := filestore.ParseURL(u)
		if ok {
			u = f.SHA256 + "/" + f.Name
		}
		_, _ = fmt.Fprintln(sum, u)
	}
	_, _ = fmt.Fprintln(sum, t.CompatibilityDate)
	return hex.EncodeToString(sum.Sum(nil))
}

func (d deployment) isServiceWorker() bool {
	return d.GetAnnotations()[formatAnnotation] == formatServiceWorker
}

// created and modified return times in the format of Cloudflare.
func (d deployment) created() string { return d.GetCreationTimestamp().UTC().Format(time.RFC3339Nano) }

func (d deployment) modified() string {
	if at := d.GetAnnotations()[modifiedAnnotation]; at != "" {
		return at
	}
	return d.created()
}

// version returns the id of the deployed version; "" if it was not uploaded here.
func (d deployment) version() string { return d.GetAnnotations()[versionAnnotation] }

// tag returns what identifies the script for its whole life.
func (d deployment) tag() string { return strings.ReplaceAll(string(d.GetUID()), "-", "") }

// script returns the name of the script.
func (d deployment) script() string { return strings.TrimPrefix(d.GetName(), d.account()+".") }

func (d deployment) account() string { return d.GetLabels()[accountLabel] }

func objectName(account, script string) string { return account + "." + script }

// deployments reads and writes the WorkerDeployments of a namespace.
type deployments struct {
	client    client.Client
	namespace string
	now       func() time.Time
}

// checkAccount returns an error if there is no WorkerAccount.
func (d *deployments) checkAccount(ctx context.Context, account string) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind("WorkerAccount"))
	err := d.client.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: account}, o)
	if apierrors.IsNotFound(err) {
		return failf(http.StatusNotFound, codeAccountNotFound, "WorkerAccount %s/%s does not exist: create it first",
			d.namespace, account)
	}
	return err
}

// get returns the WorkerDeployment of a script, or nil if there is none.
func (d *deployments) get(ctx context.Context, account, script string) (*deployment, error) {
	o := deployment{&unstructured.Unstructured{}}
	o.SetGroupVersionKind(kind("WorkerDeployment"))
	err := d.client.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: objectName(account, script)},
		o.Unstructured)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if o.account() != account {
		return nil, failf(http.StatusConflict, codeInvalid, "WorkerDeployment %s/%s does not have the label %s: %s: "+
			"add it, or use another name", d.namespace, o.GetName(), accountLabel, account)
	}
	return &o, nil
}

// live returns the WorkerDeployment of a script unless it is being deleted, or nil.
func (d *deployments) live(ctx context.Context, account, script string) (*deployment, error) {
	o, err := d.get(ctx, account, script)
	if o != nil && o.GetDeletionTimestamp() != nil {
		o = nil
	}
	return o, err
}

// writable returns the WorkerDeployment of a script, or nil if there is none. It returns an error
// for one that is being deleted.
func (d *deployments) writable(ctx context.Context, account, script string) (*deployment, error) {
	o, err := d.get(ctx, account, script)
	if o != nil && o.GetDeletionTimestamp() != nil {
		return nil, failf(http.StatusServiceUnavailable, codeInternal, "WorkerDeployment %s/%s is being deleted: "+
			"try again when it is gone", d.namespace, o.GetName())
	}
	return o, err
}

// list returns the WorkerDeployments of an account, sorted by name.
func (d *deployments) list(ctx context.Context, account string) ([]deployment, error) {
	items, err := d.objects(ctx, "WorkerDeployment", client.MatchingLabels{accountLabel: account})
	if err != nil {
		return nil, err
	}
	out := make([]deployment, len(items))
	for i := range items {
		out[i] = deployment{&items[i]}
	}
	slices.SortFunc(out, func(a, b deployment) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// objects returns the objects of a kind.
func (d *deployments) objects(ctx context.Context, kindName string, o ...client.ListOption) (
	[]unstructured.Unstructured, error) {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(kind(kindName + "List"))
	if err := d.client.List(ctx, l, append(o, client.InNamespace(d.namespace))...); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", kindName, err)
	}
	return l.Items, nil
}

// desiredState is what an upload sets in a WorkerDeployment.
type desiredState struct {
	format, version   string
	compatibilityDate string
	scriptURLs        []string
	// secretName is the Secret with the bindings; "" leaves the reference as it is.
	secretName string
}

// backoff is that of writes that others interfere with.
var backoff = retry.DefaultBackoff

// apply creates or updates the WorkerDeployment of a script. An update keeps the number, and what
// is no part of an upload. Nothing is written if nothing changes.
func (d *deployments) apply(ctx context.Context, account, script string, desired desiredState) (*deployment, error) {
	var out *deployment
	err := retry.OnError(backoff, retriable, func() (err error) {
		if err = ctx.Err(); err != nil {
			return err
		}
		out, err = d.applyOnce(ctx, account, script, desired)
		return err
	})
	return out, err
}

func retriable(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func (d *deployments) applyOnce(ctx context.Context, account, script string, desired desiredState) (
	*deployment, error) {
	have, err := d.writable(ctx, account, script)
	if err != nil {
		return nil, err
	}
	if have == nil {
		return d.create(ctx, account, script, desired)
	}
	changed := deployment{have.DeepCopy()}
	if err := changed.set(desired); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(have.Object, changed.Object) {
		return have, nil
	}
	changed.annotate(modifiedAnnotation, d.timestamp())
	return &changed, d.client.Update(ctx, changed.Unstructured)
}

func (d *deployments) create(ctx context.Context, account, script string, desired desiredState) (*deployment, error) {
	number, err := d.freeNumber(ctx, account)
	if err != nil {
		return nil, err
	}
	o := deployment{&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"template": map[string]any{"scriptName": script, "workerNumber": number}}}}}
	o.SetGroupVersionKind(kind("WorkerDeployment"))
	o.SetNamespace(d.namespace)
	o.SetName(objectName(account, script))
	o.SetLabels(map[string]string{accountLabel: account})
	if err := o.set(desired); err != nil {
		return nil, err
	}
	o.annotate(modifiedAnnotation, d.timestamp())
	return &o, d.client.Create(ctx, o.Unstructured)
}

// freeNumber returns the smallest number that no worker of the account has.
func (d *deployments) freeNumber(ctx context.Context, account string) (int64, error) {
	all, err := d.list(ctx, account)
	if err != nil {
		return 0, err
	}
	if len(all) >= maxScripts {
		return 0, failf(http.StatusForbidden, codeTooManyScripts, "account %s has %d scripts, which is the maximum: "+
			"delete one", account, len(all))
	}
	used := map[int64]bool{}
	for _, o := range all {
		used[o.template().WorkerNumber] = true
	}
	for n := int64(firstNumber); n <= lastNumber; n++ {
		if !used[n] {
			return n, nil
		}
	}
	return 0, failf(http.StatusForbidden, codeTooManyScripts, "account %s has no free port: delete a script", account)
}

func (d *deployments) timestamp() string { return d.now().UTC().Format(time.RFC3339Nano) }

// set sets what an upload determines.
func (d deployment) set(desired desiredState) error {
	fields, _, err := unstructured.NestedMap(d.Object, "spec", "template")
	if err != nil {
		return fmt.Errorf("WorkerDeployment %s: %w", d.GetName(), err)
	}
	urls := make([]any, len(desired.scriptURLs))
	for i, u := range desired.scriptURLs {
		urls[i] = u
	}
	fields["scriptUrls"] = urls
	delete(fields, "compatibilityDate")
	if desired.compatibilityDate != "" {
		fields["compatibilityDate"] = desired.compatibilityDate
	}
	if desired.secretName != "" {
		setSecretRef(fields, desired.secretName)
	}
	d.annotate(formatAnnotation, desired.format)
	d.annotate(versionAnnotation, desired.version)
	return unstructured.SetNestedMap(d.Object, fields, "spec", "template")
}

// setSecretRef sets the reference to the Secret with the bindings. A script reads them by the names
// that they have in an upload, without a prefix.
func setSecretRef(fields map[string]any, name string) {
	fields["secretRef"], fields["envPrefix"] = map[string]any{"name": name}, ""
}

func (d deployment) annotate(name, value string) {
	annotations := maps.Clone(d.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	d.SetAnnotations(annotations)
}

// setSecret sets the reference to the Secret with the bindings of a script.
func (d *deployments) setSecret(ctx context.Context, have *deployment, secretName string) error {
	if t := have.template(); t.secretName() == secretName {
		return nil
	}
	changed := have.DeepCopy()
	fields, _, err := unstructured.NestedMap(changed.Object, "spec", "template")
	if err == nil {
		setSecretRef(fields, secretName)
		err = unstructured.SetNestedMap(changed.Object, fields, "spec", "template")
	}
	if err != nil {
		return fmt.Errorf("WorkerDeployment %s: %w", have.GetName(), err)
	}
	return d.client.Patch(ctx, changed, client.MergeFrom(have.Unstructured))
}

// delete deletes a WorkerDeployment, and leaves one that replaced it meanwhile.
func (d *deployments) delete(ctx context.Context, o *deployment) error {
	uid := o.GetUID()
	err := d.client.Delete(ctx, o.Unstructured, client.Preconditions{UID: &uid})
	return client.IgnoreNotFound(err)
}
