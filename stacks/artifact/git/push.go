package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Branch is one of a repository as its server described it, to commit on.
type Branch struct {
	// Tip is the commit that it has; empty if there is no such branch.
	Tip string
	// Base is the commit that the next one goes on: the tip; where there is no such branch,
	// that of the default branch; empty in a repository without a commit.
	Base string

	client  *Client
	repo    Repository
	name    string
	masked  string
	secrets []string
	// remote has the base; nil without one.
	remote *Remote
}

// Branch asks a server for a branch. Unlike List it follows no redirect to another host, for
// what is written there would be written to whoever says so. The error is an *Error.
func (c *Client) Branch(ctx context.Context, repo Repository, name string) (*Branch, error) {
	if plumbing.NewBranchReferenceName(name).Validate() != nil {
		return nil, fail(BranchInvalid, "%s can't be the name of a branch", quoted(name))
	}
	w, u, err := c.wireTo(repo, uploadPack)
	if err != nil {
		return nil, err
	}
	stayHere(w)
	b := &Branch{client: c, repo: repo, name: name, masked: artifact.MaskURL(repo.URL), secrets: repo.Access.secrets(u)}
	r, err := c.list(ctx, repo, w, u)
	if e, ok := errors.AsType[*Error](err); ok && e.Reason == RepositoryEmpty {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	b.remote, b.Tip = r, r.tip(name)
	b.Base = cmp.Or(b.Tip, r.tip(r.defaultBranch()), r.tip(DefaultBranch), r.tip("master"))
	return b, nil
}

// tip is the commit of a branch, empty if there is none of that name.
func (r *Remote) tip(name string) string {
	if h, ok := r.refs[branchSpace+name]; ok && !h.IsZero() {
		return h.String()
	}
	return ""
}

// stayHere has a wire refuse to be led to another host.
func stayHere(w wire) {
	if h, ok := w.(*httpWire); ok {
		h.stays = true
	}
}

// Checkout gets the files of the base, none where there is no base. The caller closes it. The
// error is an *Error.
func (b *Branch) Checkout(ctx context.Context) (*Checkout, error) {
	if b.Base != "" {
		return b.remote.Fetch(ctx, b.Base)
	}
	work, err := b.client.work()
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(work, "git-")
	}
	if err != nil {
		return nil, failBy(Reason(artifact.Storage), err, "making a folder for the repository")
	}
	c := &Checkout{dir: dir, client: b.client}
	if c.store, err = newStore(ctx, filepath.Join(dir, "objects")); err != nil {
		_ = os.RemoveAll(dir)
		return nil, failBy(Reason(artifact.Storage), err, "keeping objects")
	}
	c.tree = &tree{store: c.store, nodes: map[string]*node{".": {name: ".", mode: os.ModeDir | 0o755}}}
	return c, nil
}

// Push puts a commit on the branch, and makes the branch if there is none; on is a checkout of
// its base. It returns the commit's id, or that of the base where nothing would change. The
// server takes it only while the branch is what it was: nothing is ever forced. If it moved, the
// reason is BranchMoved: ask for the branch again. The error is an *Error.
func (b *Branch) Push(ctx context.Context, on *Checkout, what Commit) (id string, err error) {
	defer func() { err = b.discreet(err) }()
	var commit plumbing.Hash
	var pack bytes.Buffer
	err = guard(func() (err error) {
		commit, err = grow(on, what, &pack, b.client.limits.Tree)
		return err
	})
	if err != nil {
		return "", err
	}
	if commit.String() == b.Base {
		return b.Base, nil
	}
	return commit.String(), b.send(ctx, commit, pack.Bytes())
}

// discreet sees to it that an error tells no secret.
func (b *Branch) discreet(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.secrets = b.secrets
		return e
	}
	return err
}

// maxReport is the most that is read of a server's answer to a push.
const maxReport = 1 << 20

// send has the server take objects, and move the branch from the tip to a commit.
func (b *Branch) send(ctx context.Context, commit plumbing.Hash, pack []byte) error {
	w, _, err := b.client.wireTo(b.repo, receivePack)
	if err != nil {
		return err
	}
	stayHere(w)
	there, err := b.ready(ctx, w)
	if err != nil {
		return err
	}
	ref, old := plumbing.NewBranchReferenceName(b.name), plumbing.NewHash(b.Tip)
	if there.References[ref.String()] != old {
		return b.moved()
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(there.Capabilities)
	framed := there.Capabilities.Supports(capability.Sideband64k)
	if framed {
		_ = req.Capabilities.Set(capability.Sideband64k)
	}
	req.Commands = []*packp.Command{{Name: ref, Old: old, New: commit}}
	req.Packfile = io.NopCloser(bytes.NewReader(pack))
	var body bytes.Buffer
	if err := req.Encode(&body); err != nil {
		return failBy(OperationFailed, err, "writing down a push")
	}
	answer, err := w.ask(ctx, body.Bytes())
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	return b.taken(ctx, answer, framed)
}

// ready asks the program that writes for what it sees. It answers also where there is no
// commit yet.
func (b *Branch) ready(ctx context.Context, w wire) (*packp.AdvRefs, error) {
	body, err := w.list(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	adv := packp.NewAdvRefs()
	err = guard(func() error { return adv.Decode(io.LimitReader(body, b.client.limits.RefBytes)) })
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs):
	case err != nil && ctx.Err() != nil:
		return nil, unreachable(ctx, err, b.masked)
	case err != nil:
		if said, ok := errors.AsType[*Error](err); ok {
			return nil, said
		}
		return nil, (&Remote{masked: b.masked, secrets: b.secrets}).badList(err)
	}
	if !adv.Capabilities.Supports(capability.ReportStatus) {
		return nil, fail(Unsupported, "the server of %s does not say whether it takes a commit, so that none is pushed", b.masked)
	}
	return adv, nil
}

// taken reads whether the server has taken a push.
func (b *Branch) taken(ctx context.Context, answer io.Reader, framed bool) error {
	answer = io.LimitReader(answer, maxReport)
	hooks := &said{}
	if framed {
		frames := sideband.NewDemuxer(sideband.Sideband64k, answer)
		frames.Progress = hooks
		answer = frames
	}
	report := packp.NewReportStatus()
	if err := guard(func() error { return report.Decode(answer) }); err != nil {
		if ctx.Err() != nil {
			return unreachable(ctx, err, b.masked)
		}
		if said, ok := errors.AsType[*Error](err); ok {
			return said
		}
		return failBy(OperationFailed, err, "the answer of %s to a push breaks off or can't be read: %s", b.masked, saying(hooks.String(), b.secrets))
	}
	refusal := report.Error()
	if refusal == nil && len(report.CommandStatuses) == 0 {
		refusal = errors.New("it says nothing of the branch")
	}
	if refusal == nil {
		return nil
	}
	// By the branch and not by what is said, which every server says in words of its own.
	if now, err := b.client.Branch(ctx, b.repo, b.name); err == nil && now.Tip != b.Tip {
		return b.moved()
	}
	_, _ = io.Copy(io.Discard, answer) // what hooks have to say may come last
	return fail(PushRefused, "the server of %s does not take a commit on the branch %s: %s: %s: may these credentials write to it?",
		b.masked, quoted(b.name), saying(refusal.Error(), b.secrets), saying(hooks.String(), b.secrets))
}

func (b *Branch) moved() error {
	return fail(BranchMoved, "somebody else pushed to the branch %s of %s meanwhile", quoted(b.name), b.masked)
}
