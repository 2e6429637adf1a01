package importstate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

var secretGVR = corev1.SchemeGroupVersion.WithResource("secrets")

// file is a file of a source.
type file struct {
	name string
	data []byte
}

// maxTotalBytes bounds the size of all files of a folder: the documents must fit into a store of 1
// MiB.
const maxTotalBytes = 16 << 20

// maxClusters bounds the clusters of an import: each has a row in its status.
const maxClusters = 1000

// inlineName is the name in errors of the state in the spec.
const inlineName = "spec.rawExportedData"

// loadFiles returns the files of an import.
func (s *Steps) loadFiles(ctx context.Context, spec *v1alpha1.ImportStateSpec, from artifact.Artifact) ([]file, error) {
	if spec.SourceRef == nil {
		return []file{{name: inlineName, data: spec.RawExportedData}}, nil
	}
	tree, err := s.Content.Fetcher.Fetch(ctx, from)
	if err != nil {
		return nil, err
	}
	defer tree.Release()
	root, err := os.OpenRoot(tree.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return readFiles(root.FS(), spec.Path)
}

// readFiles reads a file, or all .json files of a folder.
func readFiles(fsys fs.FS, root string) ([]file, error) {
	root = cmp.Or(strings.TrimPrefix(path.Clean("/"+root), "/"), ".")
	info, err := fs.Stat(fsys, root)
	if err != nil {
		return nil, reconcile.NewTerminalError(v1alpha1.PathNotFoundReason,
			"the source does not contain %q: correct spec.path", root)
	}
	var out []file
	total := int64(0)
	add := func(name string) error {
		data, err := readFile(fsys, name, maxTotalBytes-total)
		total += int64(len(data))
		out = append(out, file{name: name, data: data})
		return err
	}
	if !info.IsDir() {
		err := add(root)
		return out, err
	}
	err = fs.WalkDir(fsys, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".json") {
			return err
		}
		return add(name)
	})
	if err == nil && len(out) == 0 {
		return nil, reconcile.NewTerminalError(v1alpha1.PathNotFoundReason,
			"folder %q contains no .json file: correct spec.path", root)
	}
	return out, err
}

// readFile reads a file of at most limit bytes.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = reconcile.NewTerminalError(v1alpha1.InvalidStateReason,
			"the files exceed %d bytes in total: select fewer files with spec.path", int64(maxTotalBytes))
	}
	return data, err
}

// cachedDesired is the last result of reading a source, with a key for its inputs: the digest of
// the source, the generation of the spec and the version of the Secret.
type cachedDesired struct {
	cacheKey string
	want     desired
}

// loadDesired returns the desired content from a source. It reads the source only if an input has
// changed.
func (s *Steps) loadDesired(ctx context.Context, obj *v1alpha1.ImportState, c dynamic.Interface,
	from artifact.Artifact) (desired, error) {
	keys, err := readKeys(ctx, c, obj)
	if err != nil {
		return desired{}, err
	}
	// never fails
	last, _ := s.cache.Get(client.ObjectKeyFromObject(obj), obj.UID, func() (*cachedDesired, error) {
		return &cachedDesired{}, nil
	})
	cacheKey := fmt.Sprintf("%s %d %s %s", from.Digest, obj.Generation, keys.UID, keys.ResourceVersion)
	if last.cacheKey == cacheKey {
		return last.want, nil
	}
	files, err := s.loadFiles(ctx, &obj.Spec, from)
	if err != nil {
		return desired{}, err
	}
	want, err := s.readDesired(ctx, &obj.Spec, keys, files)
	if err != nil {
		return desired{}, err
	}
	*last = cachedDesired{cacheKey, want}
	if slices.ContainsFunc(want.problems, func(p *reconcile.StepError) bool {
		return p.Class != reconcile.TerminalClass
	}) {
		*last = cachedDesired{} // a retry may succeed
	}
	return want, nil
}

// readDesired decrypts, parses and validates files. An invalid file or cluster does not block the
// others.
func (s *Steps) readDesired(ctx context.Context, spec *v1alpha1.ImportStateSpec, keys *corev1.Secret,
	files []file) (desired, error) {
	collected := newCollector(statestore.FilterOf(spec.Select))
	for _, f := range files {
		parsed, err := s.parseFile(ctx, f, keys, spec)
		if ctx.Err() != nil {
			return desired{}, context.Cause(ctx)
		}
		if err != nil {
			collected.problems = append(collected.problems, problemOf(err))
			continue
		}
		collected.add(f.name, parsed)
	}
	want := collected.desired(spec.Credentials != v1alpha1.SkipCredentials)
	if n := len(want.clusters) + len(want.invalid); n > maxClusters {
		return desired{}, reconcile.NewTerminalError(v1alpha1.InvalidStateReason,
			"the source has %d clusters, but an ImportState imports at most %d: select fewer clusters, or use "+
				"several ImportStates", n, maxClusters)
	}
	return want, nil
}

// readKeys reads the Secret with the decryption keys, with the permissions of the import's account.
// It returns a Secret with nil as data if the spec names none.
func readKeys(ctx context.Context, c dynamic.Interface, obj *v1alpha1.ImportState) (*corev1.Secret, error) {
	d := obj.Spec.Decryption
	if d == nil {
		return &corev1.Secret{}, nil
	}
	return readSecret(ctx, c, client.ObjectKey{Namespace: obj.Namespace, Name: d.SecretRef.Name}, "spec.decryption")
}

// readSecret reads a Secret that a field of the spec refers to.
func readSecret(ctx context.Context, c dynamic.Interface, name client.ObjectKey, field string) (*corev1.Secret, error) {
	u, err := c.Resource(secretGVR).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, reconcile.NewTerminalError(appsv1.SecretNotFoundReason,
			"Secret %s does not exist: create it, or correct %s.secretRef", name, field)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s of %s: %w", name, field, err)
	}
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, secret); err != nil {
		// the cause is omitted because it may quote the data
		return nil, fmt.Errorf("decoding Secret %s of %s: invalid Secret", name, field)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	return secret, nil
}

// parseFile parses a file, and decrypts it if it is encrypted.
func (s *Steps) parseFile(ctx context.Context, f file, keys *corev1.Secret,
	spec *v1alpha1.ImportStateSpec) (*state.File, error) {
	encrypted := sops.IsEncrypted(f.data, sops.JSON)
	if !spec.AllowPlaintext {
		plaintextPaths, err := state.SecretPointers(f.data)
		if err != nil {
			return nil, reconcile.NewTerminalError(v1alpha1.InvalidStateReason, "%s: %w", f.name, err)
		}
		if len(plaintextPaths) > 0 {
			return nil, reconcile.NewTerminalError(v1alpha1.PlaintextSecretsReason,
				"%s: plaintext secrets at %s: encrypt the file with `kubectl ksctl state encrypt`, or set "+
					"spec.allowPlaintext",
				f.name, reconcile.JoinNames(plaintextPaths))
		}
	}
	data := f.data
	if encrypted {
		if keys.Data == nil {
			return nil, reconcile.NewTerminalError(string(sops.KeyMissing),
				"%s: the file is encrypted with SOPS, but spec.decryption is not set", f.name)
		}
		if s.Decrypt == nil {
			return nil, reconcile.NewTerminalError(string(sops.Unavailable),
				"%s: the file is encrypted with SOPS, but this controller does not support decryption", f.name)
		}
		var err error
		if data, err = s.Decrypt(ctx,
			sops.Request{Name: f.name, Data: f.data, Format: sops.JSON, Secret: keys.Data}); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if encryptedPaths, err := state.EncryptedPointers(data); err == nil && len(encryptedPaths) > 0 {
		return nil, reconcile.NewTerminalError(v1alpha1.InvalidStateReason,
			"%s: values at %s are encrypted, but the SOPS metadata is missing: restore the file, or encrypt it again",
			f.name, reconcile.JoinNames(encryptedPaths))
	}
	return state.Parse(f.name, data)
}
