{{- define "metalplane.labels" -}}
app.kubernetes.io/name: metalplane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "metalplane.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:metalplane-controller
{{- end }}
{{- define "metalplane.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:metalplane-dpu-agent
{{- end }}
{{- define "metalplane.nodeAgentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:metalplane-node-agent
{{- end }}
{{- define "metalplane.bootUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:metalplane-boot
{{- end }}
{{- /* Root only to open the driver's socket; nothing else of root's. */}}
{{- define "metalplane.sidecarSecurity" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- /* (list $ "controller"): an image by its key. With images.registry from there, whatever host and port its reference has. */}}
{{- define "metalplane.image" -}}
{{- $images := (index . 0).Values.images }}
{{- $reference := index $images (index . 1) }}
{{- if $images.registry }}
{{- $parts := splitList "/" $reference }}
{{- if and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) }}
{{- $parts = rest $parts }}
{{- end }}
{{- $reference = printf "%s/%s" (trimSuffix "/" $images.registry) (join "/" $parts) }}
{{- end }}
{{- $reference }}
{{- end }}
{{- /* In the spec of each pod. */}}
{{- define "metalplane.pullSecrets" }}
{{- with .Values.images.pullSecrets }}
      imagePullSecrets:
      {{- range . }}
      - name: {{ . }}
      {{- end }}
{{- end }}
{{- end }}
