package importstate

import (
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

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

// file of a source.
type file struct {
	name string
	data []byte
}

// maxTotal bytes of all files of a folder: each document goes into a store of 1 MiB,
// or is refused.
const maxTotal = 16 << 20

// maxClusters of one import: each has a line in its status.
const maxClusters = 1000

// inline is what errors call the state that stands in the object.
const inline = "spec.rawExportedData"

// files are those that an import is of.
func (s *Steps) files(ctx context.Context, spec *v1alpha1.ImportStateSpec, from artifact.Artifact) ([]file, error) {
	if spec.SourceRef == nil {
		return []file{{name: inline, data: spec.RawExportedData}}, nil
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
	return filesBelow(root.FS(), spec.Path)
}

// filesBelow reads a file, or every file of a folder whose name ends in .json.
func filesBelow(fsys fs.FS, at string) ([]file, error) {
	at = strings.TrimPrefix(path.Clean("/"+at), "/")
	if at == "" {
		at = "."
	}
	info, err := fs.Stat(fsys, at)
	if err != nil {
		return nil, fail(NotFoundReason, "the source has no %q: correct spec.path", at)
	}
	var out []file
	total := int64(0)
	add := func(name string) error {
		data, err := read(fsys, name, maxTotal-total)
		total += int64(len(data))
		out = append(out, file{name: name, data: data})
		return err
	}
	if !info.IsDir() {
		err := add(at)
		return out, err
	}
	err = fs.WalkDir(fsys, at, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".json") {
			return err
		}
		return add(name)
	})
	if err == nil && len(out) == 0 {
		return nil, fail(NotFoundReason, "the folder %q has no file whose name ends in .json: correct spec.path", at)
	}
	return out, err
}

// read reads a file of so many bytes at most.
func read(fsys fs.FS, name string, most int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fail(InvalidStateReason, "the files have more than %d bytes together: name fewer of them in spec.path", int64(maxTotal))
	}
	return data, err
}

// reading is what was read last, and of what: the content of the source, the spec and the
// version of the Secret.
type reading struct {
	of   string
	want wishes
}

// want reads what a source wants, unless it was read already.
func (s *Steps) want(ctx context.Context, obj *v1alpha1.ImportState, c dynamic.Interface, from artifact.Artifact) (wishes, error) {
	keys, err := readKeys(ctx, c, obj)
	if err != nil {
		return wishes{}, err
	}
	last, err := s.read.Get(client.ObjectKeyFromObject(obj), obj.UID, func() (*reading, error) { return &reading{}, nil })
	if err != nil {
		return wishes{}, err
	}
	of := fmt.Sprintf("%s %d %s", from.Digest, obj.Generation, keys.version)
	if last.of == of {
		return last.want, nil
	}
	files, err := s.files(ctx, &obj.Spec, from)
	if err != nil {
		return wishes{}, err
	}
	want, err := s.wishes(ctx, &obj.Spec, keys, files)
	if err != nil {
		return wishes{}, err
	}
	*last = reading{}
	if !slices.ContainsFunc(want.problems, func(p problem) bool { return !p.terminal }) {
		*last = reading{of, want}
	}
	return want, nil
}

// wishes reads what files want, decrypted and checked. What is wrong with one file or one
// cluster keeps no other back.
func (s *Steps) wishes(ctx context.Context, spec *v1alpha1.ImportStateSpec, keys keys, files []file) (wishes, error) {
	g := newGathering(statestore.FilterOf(spec.Select))
	for _, f := range files {
		parsed, err := s.open(ctx, f, keys, spec)
		if ctx.Err() != nil {
			return wishes{}, context.Cause(ctx)
		}
		if err != nil {
			g.problems = append(g.problems, problemOf(err))
			continue
		}
		g.add(f.name, parsed)
	}
	want := g.wishes(spec.Credentials != v1alpha1.SkipCredentials)
	if n := len(want.clusters) + len(want.refused); n > maxClusters {
		return wishes{}, fail(InvalidStateReason, "the source has %d clusters, and an import takes %d: select fewer of them, or split them over several imports", n, maxClusters)
	}
	return want, nil
}

// keys of the Secret that decrypts, and which version of it; the zero value: there is none.
type keys struct {
	data    map[string][]byte
	version string
}

// readKeys reads the Secret with the keys, with the rights of the import's account.
func readKeys(ctx context.Context, c dynamic.Interface, obj *v1alpha1.ImportState) (keys, error) {
	d := obj.Spec.Decryption
	if d == nil {
		return keys{}, nil
	}
	secret, err := readSecret(ctx, c, client.ObjectKey{Namespace: obj.Namespace, Name: d.SecretRef.Name}, "spec.decryption")
	if err != nil {
		return keys{}, err
	}
	return keys{secret.Data, string(secret.UID) + " " + secret.ResourceVersion}, nil
}

// readSecret reads a Secret that a field of a spec refers to, with the rights of a client.
func readSecret(ctx context.Context, c dynamic.Interface, name client.ObjectKey, field string) (*corev1.Secret, error) {
	u, err := c.Resource(secrets).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fail(SecretNotFoundReason, "there is no Secret %s: make it, or correct %s.secretRef", name, field)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s of %s: %w", name, field, err)
	}
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, secret); err != nil {
		return nil, fmt.Errorf("reading the Secret %s of %s: it is none", name, field) // what it holds stays unsaid
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	return secret, nil
}

// open decrypts a file if it is encrypted, and reads it.
func (s *Steps) open(ctx context.Context, f file, keys keys, spec *v1alpha1.ImportStateSpec) (*state.File, error) {
	encrypted := sops.Encrypted(f.data, sops.JSON)
	if !spec.AllowPlaintext {
		plain, err := state.Secrets(f.data)
		if err != nil {
			return nil, fail(InvalidStateReason, "%s: %w", f.name, err)
		}
		if len(plain) > 0 {
			return nil, fail(PlaintextReason, "%s: secrets are readable at %s: encrypt the file with `kubectl ksctl state encrypt`, or set spec.allowPlaintext",
				f.name, atMost(plain, 5))
		}
	}
	data := f.data
	if encrypted {
		if keys.data == nil {
			return nil, fail(string(sops.KeyMissing), "%s: it is encrypted with SOPS, and spec.decryption names no keys", f.name)
		}
		if s.Decrypt == nil {
			return nil, fail(string(sops.Unavailable), "%s: it is encrypted with SOPS, and this program decrypts nothing", f.name)
		}
		var err error
		if data, err = s.Decrypt(ctx, sops.Request{Name: f.name, Data: f.data, Format: sops.JSON, Secret: keys.data}); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if sealed, err := state.Sealed(data); err == nil && len(sealed) > 0 {
		return nil, fail(InvalidStateReason, "%s: values are encrypted at %s, and the metadata of SOPS is missing: restore the file, or encrypt it anew", f.name, atMost(sealed, 5))
	}
	return state.Parse(f.name, data)
}

// atMost joins some words, and says how many more there are.
func atMost(words []string, n int) string {
	if len(words) <= n {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:n], ", "), len(words)-n)
}
