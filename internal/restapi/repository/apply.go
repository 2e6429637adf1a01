package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// Change is a change of one object.
type Change struct {
	Key manifests.Key
	// IfMatch is the hash of the document that the change is for. It is empty for any document or
	// none, and "*" for any document.
	IfMatch string
	// Author and Email are those of the commit. Message has a default, such as "Update
	// Deployment.apps shop/web". Trailer is its last line, if it is not empty.
	Author, Email, Message, Trailer string
	// Edit returns the desired object for the present document, which is nil if there is none. It
	// returns nil to remove the object. It is called again if the push was lost, and the new tip
	// has another document of this object. An error ends the change.
	Edit func(ctx context.Context, present *manifests.Document) (*unstructured.Unstructured, error)
}

// Result is the result of a change.
type Result struct {
	// Document is the document after the change; nil if it was removed.
	Document *manifests.Document
	// Commit is the commit with the change; empty without one.
	Commit string
	// Changed is false if nothing differed, so that there is no commit.
	Changed bool
}

// attempt is the state of a change over its attempts.
type attempt struct {
	Change
	// edited is true after Edit returned desired for the document with the hash editedHash.
	edited     bool
	editedHash string
	desired    *unstructured.Unstructured
	// uncertain is true after a push that the server may have accepted. It had the document with
	// the hash pushedHash, which is empty for a removed one.
	uncertain  bool
	pushedHash string
	refusals   int
}

// Apply commits a change to the branch, and pushes it. The error is a *PreconditionError,
// *manifests.ConflictError, *RefusedError, *AttemptsError, *git.Error, or that of Change.Edit. If
// the context ends before the push, nothing is changed.
func (r *Repository) Apply(ctx context.Context, c Change) (Result, error) {
	if err := r.acquire(ctx); err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.Key, err)
	}
	defer r.release()
	a := &attempt{Change: c}
	var last error
	for i := range r.options.Attempts {
		if err := r.backOff(ctx, i); err != nil {
			return Result{}, fmt.Errorf("%s: pushing the change: %w", c.Key, errors.Join(err, last))
		}
		result, again, err := r.try(ctx, a)
		if !again {
			return result, err
		}
		last = err
	}
	if a.refusals > 0 {
		return Result{}, &RefusedError{Key: c.Key, Err: last}
	}
	return Result{}, &AttemptsError{Key: c.Key, Attempts: r.options.Attempts, Err: last}
}

// backOff waits before an attempt other than the first.
func (r *Repository) backOff(ctx context.Context, i int) error {
	if i == 0 {
		return nil
	}
	limit := min(backoffMax, backoffBase<<min(i-1, 10))
	timer := r.options.Clock.NewTimer(rand.N(limit) + time.Nanosecond)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try makes one attempt. If again is true, another one may succeed.
func (r *Repository) try(ctx context.Context, a *attempt) (_ Result, again bool, err error) {
	branch, err := r.readTip(ctx)
	if err != nil {
		// Whether an uncertain push succeeded is known only once the branch can be read.
		return Result{}, a.uncertain && ctx.Err() == nil, err
	}
	tree, present, err := r.find(ctx, a.Key)
	if err != nil {
		return Result{}, false, err
	}
	if a.uncertain && hashOf(present) == a.pushedHash {
		return Result{Document: present, Commit: branch.Tip, Changed: true}, false, nil
	}
	if err := a.edit(ctx, present); err != nil {
		return Result{}, false, err
	}
	files, doc, err := a.change(tree, present)
	if err != nil || len(files) == 0 {
		return Result{Document: doc}, false, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, false, context.Cause(ctx)
	}
	id, err := branch.Push(ctx, r.checkout, git.Commit{Files: files, Message: a.message(present),
		Name: cmp.Or(a.Author, "ksctl"), Email: a.Email, When: r.options.Clock.Now()})
	if err != nil {
		_ = r.discard() // it has objects that the server does not have
		again, err = a.pushFailed(ctx, err, hashOf(doc))
		return Result{}, again, err
	}
	r.advance(ctx, id)
	return Result{Document: doc, Commit: id, Changed: true}, false, nil
}

// hashOf returns the hash of a document, and an empty string without one.
func hashOf(doc *manifests.Document) string {
	if doc == nil {
		return ""
	}
	return doc.Hash
}

// edit checks the precondition, and computes the desired object unless the document is the same as
// before.
func (a *attempt) edit(ctx context.Context, present *manifests.Document) error {
	hash := hashOf(present)
	if a.IfMatch != "" && hash != a.IfMatch && (a.IfMatch != "*" || hash == "") {
		return &PreconditionError{Key: a.Key, Hash: hash}
	}
	if a.edited && a.editedHash == hash {
		return nil
	}
	desired, err := a.Edit(ctx, present)
	if err != nil {
		return err
	}
	a.edited, a.editedHash, a.desired = true, hash, desired
	return nil
}

// change returns the files of the change, and the document in them. There are no files if nothing
// differs.
func (a *attempt) change(tree *manifests.Tree, present *manifests.Document) (map[string][]byte, *manifests.Document,
	error) {
	switch {
	case a.desired != nil:
		return tree.Set(a.Key, a.desired)
	case present == nil:
		return nil, nil, nil
	}
	files, err := tree.Remove(a.Key)
	return files, nil, err
}

// message returns the message of the commit.
func (a *attempt) message(present *manifests.Document) string {
	message := printable(a.Message)
	if message == "" {
		verb := "Update "
		switch {
		case a.desired == nil:
			verb = "Delete "
		case present == nil:
			verb = "Create "
		}
		message = verb + a.Key.String()
	}
	if trailer := printable(a.Trailer); trailer != "" {
		message += "\n\n" + trailer
	}
	return message + "\n"
}

// printable returns a text without control characters.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == utf8.RuneError {
			return -1
		}
		return r
	}, text))
}

// pushFailed decides what follows from the error of a push.
func (a *attempt) pushFailed(ctx context.Context, err error, pushedHash string) (again bool, _ error) {
	e, ok := errors.AsType[*git.Error](err)
	if !ok {
		return false, err
	}
	switch e.Reason {
	case git.BranchMoved:
		a.refusals = 0
		return true, err
	case git.PushRefused:
		// A push at the same time makes some servers refuse this one before they move the branch.
		if a.refusals++; a.refusals == 1 {
			return true, err
		}
		return false, &RefusedError{Key: a.Key, Err: err}
	case git.AuthenticationRequired, git.AuthenticationFailed:
		return false, &RefusedError{Key: a.Key, Err: err}
	case git.OperationFailed:
		a.uncertain, a.pushedHash = true, pushedHash
		return ctx.Err() == nil, err
	}
	return false, err
}
