package importstate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// file of a source.
type file struct {
	name string
	data []byte
}

// maxTotal bytes of all files of a folder: each document goes into a store of 1 MiB,
// or is refused.
const maxTotal = 64 << 20

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
		return out, errors.Join(add(at))
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

// wishes reads what files want, decrypted and checked. What is wrong with one file or one
// cluster keeps no other back.
func (s *Steps) wishes(ctx context.Context, obj *v1alpha1.ImportState, files []file) (wishes, error) {
	keys, err := s.keys(ctx, obj.Namespace, obj.Spec.Decryption)
	if err != nil {
		return wishes{}, err
	}
	var out wishes
	g := gathering{filter: filterOf(obj.Spec.Select), byKey: map[string]string{}, byCloud: map[string]string{}}
	for _, f := range files {
		parsed, err := s.open(ctx, f, keys, &obj.Spec)
		if ctx.Err() != nil {
			return wishes{}, context.Cause(ctx)
		}
		if err != nil {
			out.problems = append(out.problems, problemOf(err))
			continue
		}
		g.add(&out, f.name, parsed)
	}
	if n := len(out.clusters) + len(out.refused); n > maxClusters {
		return wishes{}, fail(InvalidStateReason, "the source has %d clusters, and an import takes %d: select fewer of them, or split them over several imports", n, maxClusters)
	}
	if obj.Spec.Credentials == v1alpha1.SkipCredentials {
		out.credentials = nil
	}
	out.credentials = g.fitting(out.credentials)
	return out, nil
}

// keys are those of the Secret that decrypts; nil: there is none.
func (s *Steps) keys(ctx context.Context, namespace string, d *appsv1.Decryption) (map[string][]byte, error) {
	if d == nil {
		return nil, nil
	}
	var secret corev1.Secret
	name := client.ObjectKey{Namespace: namespace, Name: d.SecretRef.Name}
	err := s.Secrets.Get(ctx, name, &secret)
	if apierrors.IsNotFound(err) {
		return nil, fail(SecretNotFoundReason, "there is no Secret %s: make it, or correct spec.decryption.secretRef", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s of spec.decryption: %w", name, err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	return secret.Data, nil
}

// open decrypts a file if it is encrypted, and reads it.
func (s *Steps) open(ctx context.Context, f file, keys map[string][]byte, spec *v1alpha1.ImportStateSpec) (*state.File, error) {
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
		if keys == nil {
			return nil, fail(string(sops.KeyMissing), "%s: it is encrypted with SOPS, and spec.decryption names no keys", f.name)
		}
		if s.Decrypt == nil {
			return nil, fail(string(sops.Unavailable), "%s: it is encrypted with SOPS, and this program decrypts nothing", f.name)
		}
		var err error
		if data, err = s.Decrypt(ctx, sops.Request{Name: f.name, Data: f.data, Format: sops.JSON, Secret: keys}); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
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

func filterOf(sel *v1alpha1.StateSelector) state.Filter {
	if sel == nil {
		return state.Filter{}
	}
	return state.Filter{Cloud: sel.Cloud, ClusterType: sel.ClusterType, ClusterName: sel.ClusterName, Region: sel.Region}
}

// gathering puts the content of several files together.
type gathering struct {
	filter state.Filter
	// byKey and byCloud are in which file each was found.
	byKey, byCloud map[string]string
	clouds         map[string]bool
	any            bool // a file had a cluster, selected or not
}

func (g *gathering) add(out *wishes, name string, f *state.File) {
	for _, c := range f.Clusters {
		g.any = true
		if !g.filter.Fits(c.ID) {
			continue
		}
		row := rowOf(c, entry{})
		row.Action = v1alpha1.StateInvalid
		if problems := c.Check(); len(problems) > 0 {
			row.Message = name + ": " + problems[0].Error()
			out.refused = append(out.refused, row)
			continue
		}
		if first, twice := g.byKey[row.Key]; twice {
			out.problems = append(out.problems, problemOf(fail(InvalidStateReason, "%s: the cluster %s is in %s, too: leave one of the two out", name, row.Key, first)))
			continue
		}
		g.byKey[row.Key] = name
		if g.clouds == nil {
			g.clouds = map[string]bool{}
		}
		g.clouds[c.ID.Cloud] = true
		out.clusters = append(out.clusters, c)
	}
	for _, c := range f.Credentials {
		if first, twice := g.byCloud[c.Cloud]; twice {
			out.problems = append(out.problems, problemOf(fail(InvalidStateReason, "%s: the credentials of %s are in %s, too: leave one of the two out", name, c.Cloud, first)))
			continue
		}
		g.byCloud[c.Cloud] = name
		out.credentials = append(out.credentials, c)
	}
}

// fitting are the credentials of clouds that clusters were selected in; all of them
// where there is no cluster.
func (g *gathering) fitting(all []*state.Credentials) (out []*state.Credentials) {
	for _, c := range all {
		if !g.any && (g.filter.Cloud == "" || g.filter.Cloud == c.Cloud) || g.clouds[c.Cloud] {
			out = append(out, c)
		}
	}
	return out
}
