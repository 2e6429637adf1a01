package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/workers/build"
	"github.com/ksctl/gitops/internal/workers/workerd"
)

// defaultWorkerd is the path of workerd in the image.
const defaultWorkerd = "/workerd"

type pushOptions struct {
	*options
	image           string
	script          build.Script
	secrets, prefix string
	workerd         string
	downloader      build.Downloader
}

func pushCommand(shared *options) *cobra.Command {
	o := &pushOptions{options: shared}
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Download a script and push an image of its files",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := o.run(cmd.Context())
			return o.finish(cmd.Context(), &out, &out.Message, err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.image, "image", "", "The image to push, registry/namespace/account/script:tag.")
	flags.StringVar(&o.script.Name, "script", "", "The name of the script.")
	flags.StringVar(&o.script.CompatibilityDate, "compatibility-date", "",
		"The date of the behavior that the script expects, such as 2026-11-17; empty is "+
			workerd.DefaultCompatibilityDate+".")
	flags.StringArrayVar(&o.script.URLs, "url", nil,
		"A file of the script: an http, https or s3 URL. The first file handles requests. Can be repeated.")
	flags.StringVar(&o.downloader.S3Endpoint, "s3-endpoint", "",
		"The URL of the S3 server, which has buckets in the path; empty is that of the AWS region.")
	flags.DurationVar(&o.downloader.Timeout, "download-timeout", 5*time.Minute, "The timeout of all downloads.")
	flags.StringVar(&o.workerd, "workerd", defaultWorkerd,
		"The workerd that checks the script; nothing is checked if the file does not exist.")
	flags.StringVar(&o.secrets, "secrets", "",
		"The folder of the Secret that the script has while it is checked; empty, or missing, is none.")
	flags.StringVar(&o.prefix, "env-prefix", workerd.DefaultPrefix, "The prefix of the names of the Secret's keys.")
	require(cmd, "image", "script", "url")
	return cmd
}

func (o *pushOptions) run(ctx context.Context) (build.Result, error) {
	b := o.builder()
	b.Downloader = &o.downloader
	switch _, err := os.Stat(o.workerd); {
	case err == nil:
		b.Workerd = o.workerd
	case !errors.Is(err, fs.ErrNotExist):
		return build.Result{Image: o.image}, fmt.Errorf("looking for workerd: %w", err)
	}
	if o.secrets != "" {
		secret, err := workerd.ReadSecret(o.secrets)
		if err != nil {
			return build.Result{Image: o.image}, err
		}
		o.script.Bindings, o.script.Env = secret.Bind(o.prefix, "SECRET_")
	}
	return b.Push(ctx, o.image, o.script)
}

func buildCommand(shared *options) *cobra.Command {
	var base, image string
	var workers []string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Push an image with the scripts of an account on top of a base image",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := build.Result{Image: image}
			parsed, err := parseWorkers(workers)
			if err == nil {
				out, err = shared.builder().Build(cmd.Context(), base, image, parsed)
			}
			return shared.finish(cmd.Context(), &out, &out.Message, err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&base, "base", "", "The image that runs the scripts.")
	flags.StringVar(&image, "image", "", "The image to push, registry/namespace/account:tag.")
	flags.StringArrayVar(&workers, "worker", nil,
		"A script, as name=image: its name and the image that was pushed for it. Can be repeated.")
	require(cmd, "base", "image")
	return cmd
}

func parseWorkers(flags []string) ([]build.Worker, error) {
	out := make([]build.Worker, len(flags))
	for i, f := range flags {
		name, image, found := strings.Cut(f, "=")
		if !found || name == "" || image == "" {
			return nil, build.Terminal(fmt.Errorf("--worker %q is not name=image", f))
		}
		out[i] = build.Worker{Name: name, Image: image}
	}
	return out, nil
}

func purgeCommand(shared *options) *cobra.Command {
	var repository, keep string
	var last int
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete the tags of a repository, except for one and the last others",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := shared.builder().Purge(cmd.Context(), repository, keep, last)
			return shared.finish(cmd.Context(), &out, &out.Message, err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&repository, "repository", "", "The repository, registry/namespace/account.")
	flags.StringVar(&keep, "keep", "", "The tag that is kept.")
	flags.IntVar(&last, "last", 1, "The number of other tags that are kept: those that build was run for last.")
	require(cmd, "repository", "keep")
	return cmd
}

func removeCommand(shared *options) *cobra.Command {
	var image, repository string
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Delete the tag of an image, or all tags of a repository",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out build.Deletion
			var err error
			if image != "" {
				out, err = shared.builder().Remove(cmd.Context(), image)
			} else {
				out, err = shared.builder().RemoveRepository(cmd.Context(), repository)
			}
			return shared.finish(cmd.Context(), &out, &out.Message, err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&image, "image", "", "The image, registry/repository:tag.")
	flags.StringVar(&repository, "repository", "", "The repository, registry/repository.")
	cmd.MarkFlagsOneRequired("image", "repository")
	cmd.MarkFlagsMutuallyExclusive("image", "repository")
	return cmd
}
