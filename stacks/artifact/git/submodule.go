package git

import (
	"context"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/config"

	"github.com/ksctl/gitops/stacks/artifact"
)

const (
	modulesFile = ".gitmodules"
	// Limits of the submodules of a repository.
	maxModulesBytes = 64 << 10
	maxSubmodules   = 100
	maxNested       = 5
)

// AddSubmodules fetches the commits of the checkout's submodules, recursively, and adds their
// files to FS. The repository and its submodules together must be within the limits of one
// repository. repo is the repository of the checkout. Its user, password and token are sent
// only to its own server, whatever URLs .gitmodules has; its SSH key is used for every server
// in known_hosts. The error is an *Error.
func (c *Checkout) AddSubmodules(ctx context.Context, repo Repository) error {
	a := &submoduleAdder{repo: repo, checkout: c, objects: len(c.store.objects), objectBytes: c.store.size}
	return a.add(ctx, c, repo.URL, ".", 0)
}

// submoduleAdder adds submodules to a checkout and counts their objects and bytes.
type submoduleAdder struct {
	repo        Repository
	checkout    *Checkout
	count       int
	objects     int
	objectBytes int64
}

// add adds the submodules of a checkout, which was fetched from the URL from and is mounted at
// the path at.
func (a *submoduleAdder) add(ctx context.Context, c *Checkout, baseURL, mountPath string, nested int) error {
	if len(c.submodulePaths) == 0 {
		return nil
	}
	if nested == maxNested {
		return newError(SubmoduleInvalid, "submodules are nested more than %d levels deep, at %s", maxNested,
			quoteName(mountPath))
	}
	urls, err := c.submoduleURLs(mountPath)
	if err != nil {
		return err
	}
	for _, link := range c.submodulePaths {
		if a.count++; a.count > maxSubmodules {
			return newError(SubmoduleInvalid, "there are more than %d submodules", maxSubmodules)
		}
		submodulePath := path.Join(mountPath, link)
		target, ok := urls[link]
		if !ok {
			return newError(SubmoduleInvalid, "the submodule at %s has no entry in %s: add it, or remove the submodule",
				quoteName(submodulePath), path.Join(mountPath, modulesFile))
		}
		if err := a.addOne(ctx, c.tree.nodes[link], baseURL, target, submodulePath, nested); err != nil {
			return prefixError(err, "submodule "+quoteName(submodulePath))
		}
	}
	return nil
}

// addOne adds one submodule.
func (a *submoduleAdder) addOne(ctx context.Context, link *node, baseURL, rawURL, submodulePath string,
	nested int) error {
	u, err := submoduleURL(baseURL, rawURL)
	if err != nil {
		return err
	}
	access := a.accessFor(u)
	remote, err := a.remainingClient(submodulePath).List(ctx, Repository{URL: u.String(), Access: access})
	if err != nil {
		return err
	}
	sub, err := remote.Fetch(ctx, link.hash.String())
	if err != nil {
		return err
	}
	a.checkout.submodules = append(a.checkout.submodules, sub)
	a.objects += len(sub.store.objects)
	a.objectBytes += sub.store.size
	a.checkout.tree.mount(submodulePath, sub.tree)
	return a.add(ctx, sub, u.String(), submodulePath, nested+1)
}

// remainingClient returns a client whose limits are what remains of the limits of the
// repository.
func (a *submoduleAdder) remainingClient(where string) *Client {
	c := *a.checkout.client
	l := &c.limits
	l.Objects = max(l.Objects-a.objects, 0)
	l.ObjectBytes = max(l.ObjectBytes-a.objectBytes, 0)
	l.Tree.Files = max(l.Tree.Files-len(a.checkout.tree.nodes), 0)
	l.Tree.UnpackedBytes = max(l.Tree.UnpackedBytes-a.checkout.tree.bytes, 0)
	l.Tree.Depth = max(l.Tree.Depth-strings.Count(where, "/")-1, 0)
	return &c
}

// accessFor returns the credentials for the server of a submodule. It adds the user of the
// repository's URL to u if the server is the same.
func (a *submoduleAdder) accessFor(u *url.URL) Access {
	access := a.repo.Access
	home, err := url.Parse(a.repo.URL)
	if err != nil || home.Scheme != u.Scheme || home.Host != u.Host {
		access.Username, access.Password, access.BearerToken = "", "", ""
	} else if u.User == nil {
		u.User = home.User
	}
	return access
}

// submoduleURLs returns the URLs of the submodules by path, from .gitmodules.
func (c *Checkout) submoduleURLs(at string) (map[string]string, error) {
	f, ok := c.tree.nodes[modulesFile]
	if !ok || !f.mode.IsRegular() {
		return nil, nil
	}
	if f.size > maxModulesBytes {
		return nil, newError(SubmoduleInvalid, "%s has more than %d bytes", path.Join(at, modulesFile), maxModulesBytes)
	}
	content, err := fs.ReadFile(c.tree, modulesFile)
	if err != nil {
		return nil, wrapError(artifact.Storage, err, "reading %s", modulesFile)
	}
	return parseSubmoduleURLs(content, path.Join(at, modulesFile))
}

func parseSubmoduleURLs(content []byte, name string) (map[string]string, error) {
	m := config.NewModules()
	err := recoverPanic(func() error { return m.Unmarshal(content) })
	if err != nil {
		return nil, wrapError(SubmoduleInvalid, err, "%s can't be read", name)
	}
	urls := map[string]string{}
	for _, one := range m.Submodules {
		urls[path.Clean(one.Path)] = one.URL
	}
	return urls, nil
}

// scpURL matches the form user@host:path, as scp accepts it.
var scpURL = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):([^/:].*|/[^/].*)$`)

// submoduleURL returns the URL of a submodule, which can be relative to the URL of its
// repository.
func submoduleURL(baseURL, target string) (*url.URL, error) {
	if strings.HasPrefix(target, "./") || strings.HasPrefix(target, "../") {
		u, err := url.Parse(baseURL)
		if err != nil {
			return nil, newError(URLInvalid, "%s is not a URL", artifact.MaskURL(baseURL))
		}
		u = &url.URL{Scheme: u.Scheme, Host: u.Host, User: u.User, Path: path.Join("/", u.Path, target)}
		return u, nil
	}
	if parts := scpURL.FindStringSubmatch(target); parts != nil && !strings.Contains(target, "://") {
		target = "ssh://" + parts[1] + parts[2] + "/" + strings.TrimPrefix(parts[3], "/")
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme) {
		return nil, newError(SubmoduleInvalid,
			"the URL in %s must have the scheme https, http or ssh, or begin with ./ or ../", modulesFile)
	}
	return u, nil
}

// mount replaces the entry of a submodule by the tree of the submodule.
func (t *tree) mount(mountPath string, sub *tree) {
	for name, n := range sub.nodes {
		if name != "." {
			t.nodes[path.Join(mountPath, name)] = n
			continue
		}
		n.name = path.Base(mountPath)
		t.nodes[mountPath] = n
		parent := t.nodes[path.Dir(mountPath)]
		for i, e := range parent.entries {
			if e.Name() == n.name {
				parent.entries[i] = n
			}
		}
	}
	t.bytes += sub.bytes
}
