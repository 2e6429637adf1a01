package git

import (
	"context"
	"errors"
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
	// What a repository of submodules may be made of.
	maxModulesBytes = 64 << 10
	maxSubmodules   = 100
	maxNested       = 5
)

// AddSubmodules gets the commits that the checkout's submodules are at, and
// theirs, and shows their files in place. Together with the repository itself
// they are inside the bounds of one. repo is where the checkout is from: user,
// password and token go to no other server than that, wherever .gitmodules
// leads; the key for SSH goes to servers in known_hosts. The error is an *Error.
func (c *Checkout) AddSubmodules(ctx context.Context, repo Repository) error {
	a := &adder{client: c.client, home: repo, into: c, objects: len(c.store.objects), objectBytes: c.store.end}
	return a.add(ctx, c, repo.URL, ".", 0)
}

// adder adds submodules to a checkout, and counts what they cost.
type adder struct {
	client      *Client
	home        Repository
	into        *Checkout
	count       int
	objects     int
	objectBytes int64
}

// add adds the submodules of a checkout that stands at a path, and was fetched
// from a URL.
func (a *adder) add(ctx context.Context, c *Checkout, from, at string, nested int) error {
	links := c.links
	if len(links) == 0 {
		return nil
	}
	if nested == maxNested {
		return fail(SubmoduleInvalid, "there are more than %d submodules in each other, at %s", maxNested, quoted(at))
	}
	urls, err := c.modules(at)
	if err != nil {
		return err
	}
	for _, link := range links {
		if a.count++; a.count > maxSubmodules {
			return fail(SubmoduleInvalid, "there are more than %d submodules", maxSubmodules)
		}
		where := path.Join(at, link)
		target, ok := urls[link]
		if !ok {
			return fail(SubmoduleInvalid, "the submodule at %s has no entry in %s: add it, or remove the submodule", quoted(where), path.Join(at, modulesFile))
		}
		if err := a.one(ctx, c.tree.nodes[link], from, target, where, nested); err != nil {
			return about(err, "submodule "+quoted(where))
		}
	}
	return nil
}

// one adds one submodule.
func (a *adder) one(ctx context.Context, link *node, from, target, where string, nested int) error {
	u, err := moduleURL(from, target)
	if err != nil {
		return err
	}
	access := a.access(u)
	remote, err := a.rest(where).List(ctx, Repository{URL: u.String(), Access: access})
	if err != nil {
		return err
	}
	sub, err := remote.Fetch(ctx, link.hash.String())
	if err != nil {
		return err
	}
	a.into.parts = append(a.into.parts, sub)
	a.objects += len(sub.store.objects)
	a.objectBytes += sub.store.end
	a.into.tree.graft(where, sub.tree)
	return a.add(ctx, sub, u.String(), where, nested+1)
}

// rest is a client whose bounds are what is left of those of the repository.
func (a *adder) rest(where string) *Client {
	c := *a.client
	l := &c.limits
	l.Objects = max(l.Objects-a.objects, 0)
	l.ObjectBytes = max(l.ObjectBytes-a.objectBytes, 0)
	l.Tree.Files = max(l.Tree.Files-len(a.into.tree.nodes), 0)
	l.Tree.UnpackedBytes = max(l.Tree.UnpackedBytes-a.into.tree.bytes, 0)
	l.Tree.Depth = max(l.Tree.Depth-strings.Count(where, "/")-1, 0)
	return &c
}

// access is what may be shown to the server of a submodule.
func (a *adder) access(u *url.URL) Access {
	access := a.home.Access
	home, err := url.Parse(a.home.URL)
	if err != nil || home.Scheme != u.Scheme || home.Host != u.Host {
		access.Username, access.Password, access.BearerToken = "", "", ""
	} else if u.User == nil {
		u.User = home.User
	}
	return access
}

// modules are the URLs of submodules by path.
func (c *Checkout) modules(at string) (map[string]string, error) {
	f, ok := c.tree.nodes[modulesFile]
	if !ok || !f.mode.IsRegular() {
		return nil, nil
	}
	if f.size > maxModulesBytes {
		return nil, fail(SubmoduleInvalid, "%s has more than %d bytes", path.Join(at, modulesFile), maxModulesBytes)
	}
	content, err := fs.ReadFile(c.tree, modulesFile)
	if err != nil {
		return nil, failBy(Reason(artifact.Storage), err, "reading %s", modulesFile)
	}
	return parseModules(content, path.Join(at, modulesFile))
}

func parseModules(content []byte, where string) (map[string]string, error) {
	m := config.NewModules()
	err := guard(func() error { return m.Unmarshal(content) })
	if err != nil {
		return nil, failBy(SubmoduleInvalid, err, "%s can't be read", where)
	}
	urls := map[string]string{}
	for _, one := range m.Submodules {
		urls[path.Clean(one.Path)] = one.URL
	}
	return urls, nil
}

// scpForm is user@host:path, as ssh takes it.
var scpForm = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):([^/:].*|/[^/].*)$`)

// moduleURL is where a submodule is, which may be told from where its
// repository is.
func moduleURL(from, target string) (*url.URL, error) {
	if strings.HasPrefix(target, "./") || strings.HasPrefix(target, "../") {
		u, err := url.Parse(from)
		if err != nil {
			return nil, fail(URLInvalid, "%s is not a URL", artifact.MaskURL(from))
		}
		u = &url.URL{Scheme: u.Scheme, Host: u.Host, User: u.User, Path: path.Join("/", u.Path, target)}
		return u, nil
	}
	if parts := scpForm.FindStringSubmatch(target); parts != nil && !strings.Contains(target, "://") {
		target = "ssh://" + parts[1] + parts[2] + "/" + strings.TrimPrefix(parts[3], "/")
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme) {
		return nil, fail(SubmoduleInvalid, "its URL in %s is not one of https, http or ssh, and does not begin with ./ or ../", modulesFile)
	}
	return u, nil
}

// graft puts another tree in the place of an entry that is a submodule.
func (t *tree) graft(at string, sub *tree) {
	for name, n := range sub.nodes {
		if name != "." {
			t.nodes[path.Join(at, name)] = n
			continue
		}
		n.name = path.Base(at)
		t.nodes[at] = n
		in := t.nodes[path.Dir(at)]
		for i, e := range in.entries {
			if e.Name() == n.name {
				in.entries[i] = n
			}
		}
	}
	t.bytes += sub.bytes
}

// closeParts closes the checkouts of submodules.
func (c *Checkout) closeParts() error {
	var errs []error
	for _, part := range c.parts {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}
