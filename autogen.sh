#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes configure from a checkout.
set -e
cd "$(dirname "$0")"
exec autoreconf --install --force
