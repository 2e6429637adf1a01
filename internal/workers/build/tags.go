package build

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Deletion is what a run deleted.
type Deletion struct {
	Deleted int    `json:"deleted"`
	Kept    int    `json:"kept"`
	Message string `json:"message,omitempty"`
}

// unsupportedMessage is the message of runs that deleted nothing.
const unsupportedMessage = "the registry does not delete tags, so all of them are kept"

// tags returns the tags of a repository; none if the repository does not exist.
func (b *Builder) tags(ctx context.Context, repository name.Repository) ([]string, error) {
	tags, err := remote.List(repository, b.options(ctx)...)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, registryError("listing the tags of", repository, err)
	}
	return tags, nil
}

// repository parses the name of a repository.
func (b *Builder) repository(repository string) (name.Repository, error) {
	out, err := name.NewRepository(repository, b.nameOptions()...)
	if err != nil {
		return out, terminalf("repository %q is not registry/repository: %w", repository, err)
	}
	return out, nil
}

// Purge deletes the tags of a repository, except for one tag and the last of the others by the time
// when they were last the result of Build.
func (b *Builder) Purge(ctx context.Context, repository, keep string, last int) (Deletion, error) {
	repo, err := b.repository(repository)
	if err != nil {
		return Deletion{}, err
	}
	tags, err := b.tags(ctx, repo)
	if err != nil {
		return Deletion{}, err
	}
	total := len(tags)
	tags = slices.DeleteFunc(tags, func(t string) bool { return t == keep })
	created := make(map[string]time.Time, len(tags))
	for _, t := range tags {
		if created[t], err = b.created(ctx, repo.Tag(t)); err != nil {
			return Deletion{}, err
		}
	}
	slices.SortFunc(tags, func(a, b string) int {
		return cmp.Or(created[b].Compare(created[a]), cmp.Compare(a, b))
	})
	return b.delete(ctx, repo, tags[min(max(last, 0), len(tags)):], total)
}

// created returns when an image was last the result of Build; the zero time if that is not
// recorded.
func (b *Builder) created(ctx context.Context, tag name.Tag) (time.Time, error) {
	descriptor, err := remote.Get(tag, b.options(ctx)...)
	if isNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, registryError("reading", tag, err)
	}
	var manifest struct{ Annotations map[string]string }
	if err := json.Unmarshal(descriptor.Manifest, &manifest); err != nil {
		return time.Time{}, registryError("reading", tag, err)
	}
	created, _ := time.Parse(time.RFC3339, manifest.Annotations[createdAnnotation])
	return created, nil
}

// Remove deletes the tag of an image.
func (b *Builder) Remove(ctx context.Context, image string) (Deletion, error) {
	tag, err := b.tag(image)
	if err != nil {
		return Deletion{}, err
	}
	return b.delete(ctx, tag.Context(), []string{tag.TagStr()}, 1)
}

// RemoveRepository deletes all tags of a repository.
func (b *Builder) RemoveRepository(ctx context.Context, repository string) (Deletion, error) {
	repo, err := b.repository(repository)
	if err != nil {
		return Deletion{}, err
	}
	tags, err := b.tags(ctx, repo)
	if err != nil {
		return Deletion{}, err
	}
	return b.delete(ctx, repo, tags, len(tags))
}

// delete deletes tags by name: several tags may have the same digest.
func (b *Builder) delete(ctx context.Context, repo name.Repository, tags []string, total int) (Deletion, error) {
	out := Deletion{Kept: total}
	for _, t := range tags {
		tag := repo.Tag(t)
		err := b.retry(ctx, func() error { return remote.Delete(tag, b.options(ctx)...) })
		if isUnsupported(err) {
			out.Message = unsupportedMessage
			return out, nil
		}
		if err != nil && !isNotFound(err) {
			return out, registryError("deleting", tag, err)
		}
		if err == nil {
			out.Deleted++
		}
		out.Kept--
	}
	if out.Deleted > 0 {
		out.Message = fmt.Sprintf("deleted %d of %d tags", out.Deleted, total)
	}
	return out, nil
}
