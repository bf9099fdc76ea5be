/** Nodes and what is on them: a box for each replica, and one for each GPU of this machine. */

import { StateShape } from "../look/StateMark";
import { hueOf } from "../look/states";
import classes from "./clusters.module.css";
import { type Colours, ExperimentBox, own } from "./ExperimentBox";
import { type Cluster, nameOf, nodesOf, requested, slotsOf } from "./occupation";

const MOST = 128;

export function Nodes({ cluster, colours }: { cluster: Cluster; colours: Colours }) {
  const nodes = nodesOf(cluster);
  const slots = slotsOf(cluster);
  if (!nodes.length && !slots.length) return null;
  return (
    <div className={classes.nodes}>
      {nodes.map((node) => [
        <span key={`${node.name} name`} className="dim clip" title={node.name}>
          {node.name || "not placed"}
        </span>,
        <div key={node.name} className={classes.slots}>
          {node.replicas.slice(0, MOST).map(({ experiment, replica }) => (
            <ExperimentBox
              key={`${experiment.id} ${replica.replica}`}
              id={experiment.id}
              style={own(colours, experiment.id)}
              title={`${nameOf(experiment)}, ${replica.replica} ${replica.state}: ${requested(replica)}`}
            >
              <span className={`hue-${hueOf(replica.state)}`} style={{ display: "inline-flex" }}>
                <StateShape state={replica.state} size={11} />
              </span>
              {replica.replica}
            </ExperimentBox>
          ))}
          {node.replicas.length > MOST && (
            <span className="dim">
              {MOST} of {node.replicas.length}
            </span>
          )}
        </div>,
      ])}
      {slots.length > 0 && [
        <span key="gpus name" className="dim">
          GPUs
        </span>,
        <div key="gpus" className={classes.slots}>
          {slots.map(({ device, owner }) =>
            owner ? (
              <ExperimentBox
                key={device}
                id={owner.experiment.id}
                style={own(colours, owner.experiment.id)}
                title={`GPU ${device}: ${nameOf(owner.experiment)}, ${owner.replica}`}
              >
                {device} <span className="dim">{nameOf(owner.experiment)}</span>
              </ExperimentBox>
            ) : (
              <span key={device} className={classes.slot} data-free title={`GPU ${device} is free`}>
                {device} free
              </span>
            ),
          )}
        </div>,
      ]}
    </div>
  );
}
