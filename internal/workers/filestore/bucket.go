package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Bucket is a Store in a bucket of S3, below a prefix. Nothing else may write objects below the
// prefix. The key of a file ends with its hash and its name.
type Bucket struct {
	client       *s3.Client
	name, prefix string
	maxSize      int64
}

// NewBucket returns the Bucket of a namespace at bucket[/prefix]: the keys of its files begin with
// prefix/namespace/, so that namespaces can share a location. Files have at most maxSize bytes.
func NewBucket(client *s3.Client, location, namespace string, maxSize int64) (*Bucket, error) {
	name, prefix, _ := strings.Cut(strings.TrimPrefix(location, "s3://"), "/")
	if name == "" {
		return nil, fmt.Errorf("%q has no bucket: use bucket or bucket/prefix", location)
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return &Bucket{client: client, name: name, prefix: prefix + namespace + "/", maxSize: maxSize}, nil
}

func (b *Bucket) key(f File) string { return b.prefix + f.SHA256 + "/" + f.Name }

// URL implements Store.
func (b *Bucket) URL(f File) string { return "s3://" + b.name + "/" + b.key(f) }

// Put implements Store.
func (b *Bucket) Put(ctx context.Context, name string, content []byte) (File, error) {
	f, err := newFile(name, content)
	if err != nil {
		return f, err
	}
	_, err = b.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.name, Key: aws.String(b.key(f)),
		Body: bytes.NewReader(content), ContentLength: aws.Int64(int64(len(content)))})
	if err != nil {
		return f, fmt.Errorf("writing %s: %w", b.URL(f), err)
	}
	return f, nil
}

// Get implements Store.
func (b *Bucket) Get(ctx context.Context, f File) ([]byte, error) {
	if !f.valid() {
		return nil, ErrNotFound
	}
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: aws.String(b.key(f))})
	var missing *types.NoSuchKey
	if errors.As(err, &missing) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", b.URL(f), err)
	}
	content, err := io.ReadAll(io.LimitReader(out.Body, b.maxSize+1))
	if err = errors.Join(err, out.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", b.URL(f), err)
	}
	return content, verify(f, content)
}

// All implements Store.
func (b *Bucket) All(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &b.prefix})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(Info{}, fmt.Errorf("listing s3://%s/%s: %w", b.name, b.prefix, err))
				return
			}
			for _, o := range page.Contents {
				hash, name := path.Split(strings.TrimPrefix(aws.ToString(o.Key), b.prefix))
				i := Info{File: File{SHA256: strings.TrimSuffix(hash, "/"), Name: name}, Size: aws.ToInt64(o.Size),
					Modified: aws.ToTime(o.LastModified)}
				if i.valid() && !yield(i, nil) {
					return
				}
			}
		}
	}
}

// Delete implements Store.
func (b *Bucket) Delete(ctx context.Context, i Info) error {
	key := aws.String(b.key(i.File))
	head, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: key})
	var missing *types.NotFound
	if errors.As(err, &missing) || err == nil && aws.ToTime(head.LastModified).After(i.Modified) {
		return nil
	}
	if err == nil {
		_, err = b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: key})
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", b.URL(i.File), err)
	}
	return nil
}
