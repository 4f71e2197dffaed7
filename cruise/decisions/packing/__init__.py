"""Which pods should run where, with a proof: the packer's core, in whole numbers that know nothing of Kubernetes."""
