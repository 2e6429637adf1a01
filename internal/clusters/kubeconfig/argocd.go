package kubeconfig

import (
	"encoding/json"
)

// ArgoCDLabel and ArgoCDLabelValue mark a Secret that declares a cluster of Argo CD.
// https://argo-cd.readthedocs.io/en/stable/operator-manual/declarative-setup/#clusters
const (
	ArgoCDLabel      = "argocd.argoproj.io/secret-type"
	ArgoCDLabelValue = "cluster"
)

// argoConfig is the value of the key config of Argo CD's Secret.
type argoConfig struct {
	Username    string  `json:"username,omitempty"`
	Password    string  `json:"password,omitempty"`
	BearerToken string  `json:"bearerToken,omitempty"`
	TLS         argoTLS `json:"tlsClientConfig"`
	ProxyURL    string  `json:"proxyUrl,omitempty"`
}

// argoTLS encodes bytes as base64, as Argo CD expects.
type argoTLS struct {
	Insecure   bool   `json:"insecure"`
	ServerName string `json:"serverName,omitempty"`
	CAData     []byte `json:"caData,omitempty"`
	CertData   []byte `json:"certData,omitempty"`
	KeyData    []byte `json:"keyData,omitempty"`
}

// ArgoCDSecretData returns the data of the Secret that declares the cluster to Argo CD under a
// name.
func (a *Access) ArgoCDSecretData(name string) (map[string][]byte, error) {
	cluster, user := a.config.Clusters[a.Context], a.config.AuthInfos[a.Context]
	config, err := json.Marshal(argoConfig{Username: user.Username, Password: user.Password, BearerToken: user.Token,
		ProxyURL: cluster.ProxyURL,
		TLS: argoTLS{Insecure: cluster.InsecureSkipTLSVerify, ServerName: cluster.TLSServerName,
			CAData:   cluster.CertificateAuthorityData,
			CertData: user.ClientCertificateData, KeyData: user.ClientKeyData}})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"name": []byte(name), "server": []byte(a.Server), "config": config}, nil
}
