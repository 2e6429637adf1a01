package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// AdminUser is the user name of [Cluster.Config] in the audit log.
const AdminUser = "e2e-admin"

// tokenLifetime is the lifetime of a ServiceAccount token: longer than a suite.
const tokenLifetime = 24 * 60 * 60 // seconds

// Config returns a copy of the administrator's configuration. It has no client-side rate limit;
// set QPS to add one.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig file with the administrator's
// access, in the run's folder.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Client returns the administrator's client. It reads without a cache and discovers new kinds.
func (c *Cluster) Client() client.WithWatch { return c.client }

// prepareAccess creates the administrator's configuration, kubeconfig file and clients. None of
// them needs a running API server.
func (c *Cluster) prepareAccess() error {
	var err error
	if c.config, err = c.ConfigForUser(AdminUser, "system:masters"); err != nil {
		return err
	}
	if c.kubeconfig, err = c.WriteKubeconfig("admin", c.config); err != nil {
		return err
	}
	if c.clientset, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("creating the administrator's client: %w", err)
	}
	if c.client, err = c.newClient(); err != nil {
		return fmt.Errorf("creating the administrator's client: %w", err)
	}
	return nil
}

func (c *Cluster) newClient() (client.WithWatch, error) {
	known := cmp.Or(c.opts.Scheme, runtime.NewScheme())
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(known); err != nil {
			return nil, err
		}
	}
	httpClient, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(c.config, httpClient)
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(c.config, client.Options{HTTPClient: httpClient, Scheme: known, Mapper: mapper})
}

// ConfigForUser returns a configuration with a client certificate for any user and groups. RBAC
// decides what the user may do; the group system:masters may do everything.
func (c *Cluster) ConfigForUser(user string, groups ...string) (*rest.Config, error) {
	credentials, err := c.pki.client(user, groups)
	if err != nil {
		return nil, err
	}
	config := c.anonymousConfig()
	config.CertData, config.KeyData = credentials.cert, credentials.key
	return config, nil
}

// ConfigFor returns a configuration that authenticates as a ServiceAccount, with a token from the
// TokenRequest API that is valid for a day. The account must exist; RBAC decides what it may do.
func (c *Cluster) ConfigFor(ctx context.Context, namespace, serviceAccount string) (*rest.Config, error) {
	seconds := int64(tokenLifetime)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	request, err := c.clientset.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token for ServiceAccount %s/%s: %w", namespace, serviceAccount, err)
	}
	config := c.anonymousConfig()
	config.BearerToken = request.Status.Token
	return config, nil
}

// KubeconfigFor writes a kubeconfig file for a ServiceAccount, see [Cluster.ConfigFor], into the
// run's folder and returns its path.
func (c *Cluster) KubeconfigFor(ctx context.Context, namespace, serviceAccount string) (string, error) {
	config, err := c.ConfigFor(ctx, namespace, serviceAccount)
	if err != nil {
		return "", err
	}
	return c.WriteKubeconfig("sa-"+namespace+"-"+serviceAccount, config)
}

// ServiceAccountUser returns the user name of a ServiceAccount.
func ServiceAccountUser(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// AwaitPermission waits until RBAC allows a user an action. The API server's authorizer sees roles
// and bindings a moment after they are stored, and until then denies what they allow.
func (c *Cluster) AwaitPermission(ctx context.Context, user string,
	permission authorizationv1.ResourceAttributes) error {
	what := fmt.Sprintf("permission of %s to %s %s", user, permission.Verb, permission.Resource)
	return Await(ctx, what, startTimeout, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &permission}}
		review, err := c.clientset.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("not allowed: %s", review.Status.Reason)
		}
		return err
	}, c.apiServer)
}

// anonymousConfig returns a configuration that trusts the cluster's CA and has no credentials.
func (c *Cluster) anonymousConfig() *rest.Config {
	return &rest.Config{
		Host:            "https://" + loopback(c.apiPort.number),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.caPEM},
		QPS:             -1,
	}
}

// WriteKubeconfig writes a configuration as <name>.kubeconfig into the run's
// folder and returns the path.
func (c *Cluster) WriteKubeconfig(name string, config *rest.Config) (string, error) {
	file := clientcmdapi.NewConfig()
	file.Clusters["e2e"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["e2e"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
	}
	file.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "e2e"}
	file.CurrentContext = "e2e"
	path := c.run.path(strings.ReplaceAll(name, ":", "-") + ".kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return path, nil
}
