// Command worker-api serves the parts of Cloudflare's API for Workers scripts with which clients
// such as wrangler deploy and delete scripts. An upload becomes a WorkerDeployment in one
// namespace, and its files are served to the build at another address.
//
// It must run once per namespace: it serializes the uploads of an account.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/version"
	"github.com/ksctl/gitops/internal/workers/filestore"
	"github.com/ksctl/gitops/internal/workers/scriptsapi"
)

// fieldManager is the manager of the fields that the program sets.
const fieldManager = "worker-api"

type options struct {
	addr, filesAddr   string
	certFile, keyFile string
	data, filesURL    string
	dataLimit         string
	bucket, endpoint  string
	maxFile, maxTotal string
	secrets           bool
	api               scriptsapi.Options
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := new(options).command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker-api:", err)
		os.Exit(1)
	}
}

// command returns the command that sets the options.
func (o *options) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "worker-api",
		Short:         "Serve Cloudflare's API for Workers scripts",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil))
			ctrl.SetLogger(log)
			return o.run(cmd.Context(), log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.addr, "addr", ":8787", "The address of the API.")
	flags.StringVar(&o.certFile, "cert-file", "", "The certificate of the API, as PEM; empty serves plain HTTP.")
	flags.StringVar(&o.keyFile, "key-file", "", "The private key of the certificate, as PEM.")
	flags.StringVar(&o.filesAddr, "files-addr", ":8788", "The address of the files, for the build alone.")
	flags.StringVar(&o.filesURL, "files-url", "",
		"The URL of --files-addr for the build, such as http://worker-api.team.svc:8788; required without --s3.")
	flags.StringVar(&o.data, "data", "/data", "The folder of the files and of the versions that are not deployed.")
	flags.StringVar(&o.dataLimit, "data-limit", "0", "The maximum size of all files in --data, such as 1Gi; 0 is none.")
	flags.StringVar(&o.bucket, "s3", "", "The place of the files in S3, as bucket[/prefix], instead of --data: "+
		"their keys begin with prefix/namespace/. Credentials are those of the standard chain of AWS.")
	flags.StringVar(&o.endpoint, "s3-endpoint", "", "The URL of the server of S3; empty is that of the region.")
	flags.StringVar(&o.api.Namespace, "namespace", "", "The namespace of the WorkerAccounts.")
	flags.StringVar(&o.api.TokensFolder, "tokens", "",
		"The folder of the tokens: a file for each account, with one token per line. Changes are noticed.")
	flags.StringVar(&o.maxFile, "max-file-size", "10Mi", "The maximum size of a file.")
	flags.StringVar(&o.maxTotal, "max-upload-size", "32Mi", "The maximum size of all files of a script.")
	flags.StringVar(&o.api.MaxCompatibilityDate, "max-compatibility-date", scriptsapi.DefaultMaxCompatibilityDate,
		"The latest compatibility date, which is that of the workerd that runs the scripts.")
	flags.DurationVar(&o.api.Keep, "keep", scriptsapi.DefaultKeep,
		"The age at which unused files are deleted, and versions that are not deployed.")
	flags.BoolVar(&o.secrets, "secrets", true,
		"Write bindings of scripts to Secrets. If false, scripts with bindings are refused.")
	for _, required := range []string{"namespace", "tokens"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

// run serves until ctx ends.
func (o *options) run(ctx context.Context, log logr.Logger) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("loading the kubeconfig: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	o.api.Client = client.WithFieldOwner(c, fieldManager)
	return o.serve(ctx, log)
}

// serve serves the API with the client of the options until ctx ends.
func (o *options) serve(ctx context.Context, log logr.Logger) error {
	if (o.certFile == "") != (o.keyFile == "") {
		return fmt.Errorf("--cert-file and --key-file: set both or none")
	}
	if o.api.Keep <= 0 {
		return fmt.Errorf("--keep %s: use a positive duration", o.api.Keep)
	}
	limit, err := parseSize("data-limit", o.dataLimit)
	if err != nil {
		return err
	}
	if o.api.MaxFileSize, err = parseSize("max-file-size", o.maxFile); err != nil {
		return err
	}
	if o.api.MaxUploadSize, err = parseSize("max-upload-size", o.maxTotal); err != nil {
		return err
	}
	if o.api.Files, err = o.store(ctx, limit); err != nil {
		return err
	}
	o.api.VersionsFolder = filepath.Join(o.data, "versions")
	o.api.DisableSecrets, o.api.Log = !o.secrets, log
	api, err := scriptsapi.New(o.api)
	if err != nil {
		return err
	}
	s := &servers{options: o, api: api, log: log, keep: o.api.Keep}
	return s.run(ctx)
}

// parseSize returns the bytes of a flag.
func parseSize(flag, text string) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("--%s %q: use a size such as 10Mi", flag, text)
	}
	return q.Value(), nil
}

// store returns where the files are.
func (o *options) store(ctx context.Context, limit int64) (filestore.Store, error) {
	if o.bucket == "" {
		if o.filesURL == "" {
			return nil, fmt.Errorf("--files-url is required without --s3: the build fetches the files from it")
		}
		return filestore.NewVolume(filepath.Join(o.data, "files"), o.filesURL+"/files", limit)
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithDefaultRegion("us-east-1"))
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	c := s3.NewFromConfig(cfg, func(c *s3.Options) {
		if o.endpoint != "" {
			c.BaseEndpoint, c.UsePathStyle = &o.endpoint, true
		}
		// Other servers than that of AWS do not have the newer checksums.
		c.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		c.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return filestore.NewBucket(c, o.bucket, o.api.Namespace, o.api.MaxFileSize)
}
