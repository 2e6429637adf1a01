// Command dynamodb-partition deletes all items of one partition of a DynamoDB table. Credentials
// are those of the standard chain of AWS: the environment, the shared files, the identity of a
// ServiceAccount, the instance.
//
// It writes how many items this run deleted as JSON. The exit status is 0 when the partition is
// empty, 1 when another run may succeed, and 2 when it would fail in the same way.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/dynamodb"
	"github.com/ksctl/gitops/internal/version"
)

// Exit statuses.
const (
	exitRetry    = 1
	exitTerminal = 2
)

// Limits of the backoff of requests that DynamoDB throttles.
const (
	maxAttempts = 5
	maxBackoff  = 5 * time.Second
)

// maxMessage is the largest length of the message of a result: a termination message has at most
// 4096 bytes.
const maxMessage = 1024

type options struct {
	partition        dynamodb.Partition
	region, endpoint string
	concurrency      int
	result           string
}

// result is what a run reports. DeletedItems are those of this run alone, also if it failed.
type result struct {
	DeletedItems int64  `json:"deletedItems"`
	Message      string `json:"message,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "dynamodb-partition:", err)
	if dynamodb.IsTerminal(err) {
		os.Exit(exitTerminal)
	}
	os.Exit(exitRetry)
}

func newCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "dynamodb-partition",
		Short:         "Delete all items of one partition of a DynamoDB table",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.partition.Table, "table", "", "The name of the table.")
	flags.StringVar(&o.partition.Value, "partition-value", "",
		"The value of the partition key. That of a binary key is in base64.")
	flags.StringVar(&o.region, "region", "", "The region; empty is that of the AWS configuration, else us-east-1.")
	flags.StringVar(&o.endpoint, "endpoint-url", "", "The URL of the server; empty is that of the region.")
	flags.IntVar(&o.concurrency, "concurrency", 8, "The largest number of batches that are deleted at the same time.")
	flags.StringVar(&o.result, "result", "", "The file to which the result is written; empty prints it.")
	for _, required := range []string{"table", "partition-value"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

// run deletes the partition and writes the result.
func (o *options) run(ctx context.Context) error {
	deleted, err := o.delete(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("a signal stopped the run before the partition was empty: %w", ctx.Err())
	}
	r := result{DeletedItems: deleted}
	if err != nil {
		r.Message = strings.ToValidUTF8(err.Error()[:min(len(err.Error()), maxMessage)], "")
	}
	if writeErr := o.write(r); err == nil {
		return writeErr
	}
	return err
}

func (o *options) delete(ctx context.Context) (int64, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(o.region), config.WithDefaultRegion("us-east-1"),
		config.WithRetryMaxAttempts(maxAttempts))
	if err != nil {
		return 0, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	client := awsdynamodb.NewFromConfig(cfg, func(c *awsdynamodb.Options) {
		if o.endpoint != "" {
			c.BaseEndpoint = &o.endpoint
		}
	})
	d := &dynamodb.Deleter{API: client, Concurrency: max(o.concurrency, 1),
		Backoff: retry.NewExponentialJitterBackoff(maxBackoff)}
	return d.Delete(ctx, o.partition)
}

func (o *options) write(r result) error {
	content, err := json.Marshal(r)
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
