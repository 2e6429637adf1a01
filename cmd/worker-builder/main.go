// Command worker-builder makes the images of the Workers system, and deletes them. Credentials for
// registries are those of DOCKER_CONFIG, those for S3 are of the standard chain of AWS.
//
// It writes what it did as JSON. The exit status is 0 when the images are as requested, 1 when
// another run may succeed, and 2 when it would fail in the same way.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/version"
	"github.com/ksctl/gitops/internal/workers/build"
)

// Exit statuses.
const (
	exitRetry    = 1
	exitTerminal = 2
)

// maxMessage is the largest length of the message of a result: a termination message has at most
// 4096 bytes.
const maxMessage = 1024

// maxBackoff is the largest delay between two pushes.
const maxBackoff = 15 * time.Second

// options are the flags of all commands.
type options struct {
	insecure bool
	timeout  time.Duration
	result   string

	cancelTimeout context.CancelFunc
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "worker-builder:", err)
	if build.IsTerminal(err) {
		os.Exit(exitTerminal)
	}
	os.Exit(exitRetry)
}

func newCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "worker-builder",
		Short:         "Make the images of scripts and of accounts, and delete them",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			var ctx context.Context
			ctx, o.cancelTimeout = context.WithTimeout(cmd.Context(), o.timeout)
			cmd.SetContext(ctx)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return build.Terminal(err) })
	flags := cmd.PersistentFlags()
	flags.BoolVar(&o.insecure, "insecure", false,
		"Permit plain HTTP for the registry of --image or --repository.")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "The time after which the run ends with an error.")
	flags.StringVar(&o.result, "result", "", "The file to which the result is written; empty prints it.")
	cmd.AddCommand(pushCommand(o), buildCommand(o), purgeCommand(o), removeCommand(o))
	return cmd
}

// builder returns a builder with the credentials of DOCKER_CONFIG.
func (o *options) builder() *build.Builder {
	return &build.Builder{
		Insecure: o.insecure,
		Remote: []remote.Option{remote.WithAuthFromKeychain(authn.DefaultKeychain),
			remote.WithUserAgent("worker-builder/" + version.String())},
		Backoff: func(n int) time.Duration { return min(time.Second<<n, maxBackoff) },
		Now:     time.Now,
	}
}

// finish writes the result of a command, whose message is that of its error, and returns the error.
func (o *options) finish(ctx context.Context, result any, message *string, err error) error {
	defer o.cancelTimeout()
	switch {
	case err == nil || ctx.Err() == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the run did not end in %s: %w", o.timeout, err)
	default:
		err = fmt.Errorf("a signal stopped the run before its end: %w", ctx.Err())
	}
	if err != nil {
		*message = err.Error()
	}
	*message = strings.ToValidUTF8((*message)[:min(len(*message), maxMessage)], "")
	if writeErr := o.write(result); err == nil {
		return writeErr
	}
	return err
}

func (o *options) write(result any) error {
	content, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if o.result == "" {
		_, err = fmt.Println(string(content))
		return err
	}
	if err := os.WriteFile(o.result, content, 0o600); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// require marks flags as required.
func require(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err) // the flag is defined by the caller
		}
	}
}
