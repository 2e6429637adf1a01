package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/restapi"
	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/internal/restapi/repository"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// RESTOptions configures the REST endpoint. Without Addr there is none, and without GitSource it
// commits nothing.
type RESTOptions struct {
	Addr, CertFile, KeyFile string
	// GitSource is the source whose repository changes are committed to: KIND/NAMESPACE/NAME. The
	// branch and the Secret default to those of that source. GitPath is required: another folder
	// may be that of another cluster.
	GitSource, GitBranch, GitPath string
	// GitSecret is the Secret that may push: NAMESPACE/NAME.
	GitSecret string
}

func (r *RESTOptions) bindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&r.Addr, "rest-addr", "", "The address at which the REST endpoint for KsctlInstalls and published "+
		"kinds is served over TLS, such as :9543; empty disables it.")
	fs.StringVar(&r.CertFile, "rest-cert-file", "", "The file with the TLS certificate of the REST endpoint, in PEM.")
	fs.StringVar(&r.KeyFile, "rest-key-file", "",
		"The file with the private key of --rest-cert-file, in PEM. Both files are read again when they change.")
	fs.StringVar(&r.GitSource, "rest-git-source", "", "The GitRepository or KsctlSource to whose repository the REST "+
		"endpoint commits changes, as KIND/NAMESPACE/NAME; if empty, it sends changes to the API server.")
	fs.StringVar(&r.GitBranch, "rest-git-branch", "",
		"The branch that the REST endpoint commits to; if empty, that of --rest-git-source.")
	fs.StringVar(&r.GitPath, "rest-git-path", "",
		"The folder of the repository in which the REST endpoint changes objects, which --rest-git-source requires: "+
			"the one that this cluster applies, or . for the whole repository.")
	fs.StringVar(&r.GitSecret, "rest-git-secret", "", "The Secret that may push to the repository, as "+
		"NAMESPACE/NAME, with the keys of a source's secretRef; if empty, the Secret of --rest-git-source.")
}

func (r *RESTOptions) validate() error {
	if r.Addr == "" {
		return nil
	}
	if r.CertFile == "" || r.KeyFile == "" {
		return errors.New("--rest-addr: the REST endpoint needs TLS: set --rest-cert-file and --rest-key-file")
	}
	if r.GitSource == "" {
		if r.GitBranch != "" || r.GitPath != "" || r.GitSecret != "" {
			return errors.New("--rest-git-branch, --rest-git-path and --rest-git-secret have no effect without " +
				"--rest-git-source: set it or remove them")
		}
		return nil
	}
	if _, _, err := r.source(); err != nil {
		return err
	}
	if r.GitPath == "" {
		return errors.New("--rest-git-source: set --rest-git-path to the folder that this cluster applies, or to . " +
			"for the whole repository")
	}
	_, err := r.secret()
	return err
}

// source returns the kind and the name of GitSource.
func (r *RESTOptions) source() (string, types.NamespacedName, error) {
	parts := strings.Split(r.GitSource, "/")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" ||
		parts[0] != sourcev1.GitRepositoryKind && parts[0] != appsv1.KsctlSourceKind {
		return "", types.NamespacedName{}, fmt.Errorf("--rest-git-source %q: expected KIND/NAMESPACE/NAME with the "+
			"kind GitRepository or KsctlSource", r.GitSource)
	}
	return parts[0], types.NamespacedName{Namespace: parts[1], Name: parts[2]}, nil
}

// secret returns the name of GitSecret; empty if it is not set.
func (r *RESTOptions) secret() (types.NamespacedName, error) {
	namespace, name, _ := strings.Cut(r.GitSecret, "/")
	if r.GitSecret != "" && (namespace == "" || name == "" || strings.Contains(name, "/")) {
		return types.NamespacedName{}, fmt.Errorf("--rest-git-secret %q: expected NAMESPACE/NAME", r.GitSecret)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// addREST adds the REST endpoint to the manager.
func (p *process) addREST() error {
	o := p.opts.REST
	if o.Addr == "" {
		return nil
	}
	options := restapi.Options{Addr: o.Addr, CertFile: o.CertFile, KeyFile: o.KeyFile, Config: p.mgr.GetConfig(),
		Kinds: p.mgr.GetClient(), Mapper: p.mgr.GetRESTMapper(), Clock: clock.RealClock{},
		Log: p.mgr.GetLogger().WithName("rest"), Observe: p.metrics.RESTRequest}
	if o.GitSource != "" {
		// A killed process leaves files behind. If the directory can't be removed, each change
		// reports the error.
		work := filepath.Join(p.opts.StoragePath, "rest")
		_ = os.RemoveAll(work)
		limits := p.opts.GitLimits
		limits.Tree = p.opts.ArtifactLimits
		options.Repository = &restRepository{target: &restTarget{reader: p.mgr.GetAPIReader(), opts: o},
			client: git.NewClient(git.Options{Limits: limits, TempDir: work})}
	}
	server, err := restapi.New(options)
	if err != nil {
		return err
	}
	return server.Register(p.mgr)
}

// restRepository is the repository of the REST endpoint, on the branch that the source has now.
type restRepository struct {
	target *restTarget
	client *git.Client

	mu      sync.Mutex
	current *branchRepository
	// closing are the goroutines that close repositories on other branches, and errs their errors.
	closing sync.WaitGroup
	errs    []error
}

// branchRepository is the repository on one branch.
type branchRepository struct {
	*repository.Repository
	branch string
	// users are the requests that use it.
	users sync.WaitGroup
}

// close removes temporary files, after the requests that use the repository.
func (b *branchRepository) close() error {
	b.users.Wait()
	return b.Close()
}

var _ restapi.Repository = (*restRepository)(nil)

// Get implements restapi.Repository.
func (r *restRepository) Get(ctx context.Context, key manifests.Key) (*manifests.Document, error) {
	current, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	defer current.users.Done()
	return current.Get(ctx, key)
}

// Apply implements restapi.Repository.
func (r *restRepository) Apply(ctx context.Context, c repository.Change) (repository.Result, error) {
	current, err := r.open(ctx)
	if err != nil {
		return repository.Result{}, err
	}
	defer current.users.Done()
	return current.Apply(ctx, c)
}

// open returns the repository on the branch of the source, with the caller as one of its users.
func (r *restRepository) open(ctx context.Context) (*branchRepository, error) {
	_, branch, err := r.target.resolve(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil || r.current.branch != branch {
		if former := r.current; former != nil {
			r.closing.Go(func() { r.closeFormer(former) })
		}
		r.current = &branchRepository{branch: branch, Repository: repository.New(repository.Options{Client: r.client,
			Branch: branch, Path: r.target.opts.GitPath, Open: func(ctx context.Context) (git.Repository, error) {
				repo, _, err := r.target.resolve(ctx)
				return repo, err
			}})}
	}
	r.current.users.Add(1)
	return r.current, nil
}

// closeFormer closes a repository that is not the current one any more.
func (r *restRepository) closeFormer(former *branchRepository) {
	err := former.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// Close removes temporary files, after the requests.
func (r *restRepository) Close() error {
	r.mu.Lock()
	current := r.current
	r.current = nil
	r.mu.Unlock()
	var err error
	if current != nil {
		err = current.close()
	}
	r.closing.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(append(r.errs, err)...)
}

// restTarget is the branch that the REST endpoint commits to.
type restTarget struct {
	reader client.Reader
	opts   RESTOptions
}

// gitSource is what a source has about its repository.
type gitSource struct {
	url, branch string
	secret      *fluxmeta.LocalObjectReference
	proxy       *fluxmeta.LocalObjectReference
}

// resolve returns the repository with its credentials, and the branch. It reads them each time: a
// change takes effect at once.
func (t *restTarget) resolve(ctx context.Context) (repo git.Repository, branch string, err error) {
	kind, key, err := t.opts.source()
	if err != nil {
		return repo, "", err
	}
	source, err := t.readSource(ctx, kind, key)
	if err != nil {
		return repo, "", err
	}
	if branch = cmp.Or(t.opts.GitBranch, source.branch); branch == "" {
		return repo, "", gitsecret.NewInvalid("%s %s tracks no branch: set the controller's --rest-git-branch", kind,
			key)
	}
	read := gitsecret.Reader(t.readSecret)
	repo.URL = source.url
	credentials := gitsecret.Repository{Namespace: key.Namespace, URL: source.url, SecretRef: source.secret,
		Field: fmt.Sprintf("%s %s", kind, key)}
	if secret, err := t.opts.secret(); err != nil {
		return repo, "", err
	} else if secret.Name != "" {
		credentials.Namespace, credentials.Field = secret.Namespace, "--rest-git-secret"
		credentials.SecretRef = &fluxmeta.LocalObjectReference{Name: secret.Name}
	}
	if repo.Access, err = read.Access(ctx, credentials); err == nil && source.proxy != nil {
		repo.Access.Proxy, err = read.Proxy(ctx, key.Namespace, source.proxy.Name,
			fmt.Sprintf("%s %s: proxySecretRef", kind, key))
	}
	return repo, branch, err
}

// readSource reads the source.
func (t *restTarget) readSource(ctx context.Context, kind string, key types.NamespacedName) (*gitSource, error) {
	if kind == appsv1.KsctlSourceKind {
		var s appsv1.KsctlSource
		if err := t.read(ctx, kind, key, &s); err != nil {
			return nil, err
		}
		g := s.Spec.Git
		if g == nil {
			return nil, gitsecret.NewInvalid("KsctlSource %s has no spec.git: the REST endpoint needs a Git repository",
				key)
		}
		out := &gitSource{url: g.URL, branch: git.DefaultBranch, secret: g.SecretRef, proxy: g.ProxySecretRef}
		if g.Ref != nil {
			out.branch = g.Ref.Branch
		}
		return out, nil
	}
	var s sourcev1.GitRepository
	if err := t.read(ctx, kind, key, &s); err != nil {
		return nil, err
	}
	out := &gitSource{url: s.Spec.URL, branch: "master", secret: s.Spec.SecretRef, proxy: s.Spec.ProxySecretRef}
	if r := s.Spec.Reference; r != nil {
		out.branch = r.Branch
	}
	return out, nil
}

// read reads a source.
func (t *restTarget) read(ctx context.Context, kind string, key types.NamespacedName, into client.Object) error {
	err := t.reader.Get(ctx, key, into)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return gitsecret.NewInvalid("%s %s does not exist: create it, or correct the controller's --rest-git-source",
			kind, key)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", kind, key, err)
	}
	return nil
}

// readSecret is a gitsecret.Reader.
func (t *restTarget) readSecret(ctx context.Context, namespace, name, field string) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := t.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, gitsecret.NewNotFound(namespace, name, field)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s of %s: %w", namespace, name, field, err)
	}
	return &secret, nil
}
