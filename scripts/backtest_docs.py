"""Turn what `cruise backtest --format json` prints into the page of results."""

import json
import sys

from cruise.interfaces.backtest.markdown import results_markdown

if __name__ == "__main__":
    sys.stdout.write(results_markdown(json.load(sys.stdin)))
